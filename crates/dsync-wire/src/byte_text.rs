//! Byte strings in JSON: text if they are UTF-8, else an array of numbers. Neither form loses
//! anything.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A byte string for serialization.
#[derive(Serialize)]
#[serde(untagged)]
enum Shown<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
}

/// A deserialized byte string.
#[derive(Deserialize)]
#[serde(untagged)]
enum Read {
    Text(String),
    Bytes(Vec<u8>),
}

impl<'a> From<&'a [u8]> for Shown<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        std::str::from_utf8(bytes).map_or(Self::Bytes(bytes), Self::Text)
    }
}

impl From<Read> for Vec<u8> {
    fn from(read: Read) -> Self {
        match read {
            Read::Text(text) => text.into_bytes(),
            Read::Bytes(bytes) => bytes,
        }
    }
}

pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    Shown::from(bytes).serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    Read::deserialize(deserializer).map(Into::into)
}

/// An optional byte string.
pub(crate) mod optional {
    use super::{Deserialize, Deserializer, Read, Serialize, Serializer, Shown};

    #[expect(clippy::ref_option, reason = "the signature that serde's `with` asks for")]
    pub(crate) fn serialize<S: Serializer>(
        bytes: &Option<Vec<u8>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        bytes.as_deref().map(Shown::from).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Vec<u8>>, D::Error> {
        Ok(Option::<Read>::deserialize(deserializer)?.map(Into::into))
    }
}

/// A list of byte strings.
pub(crate) mod list {
    use super::{Deserialize, Deserializer, Read, Serializer, Shown};

    pub(crate) fn serialize<S: Serializer>(list: &[Vec<u8>], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(list.iter().map(|bytes| Shown::from(bytes.as_slice())))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vec<u8>>, D::Error> {
        Ok(Vec::<Read>::deserialize(deserializer)?.into_iter().map(Into::into).collect())
    }
}

/// A list of paths of entries: as a list of byte strings, since an end of any version reads it so.
pub(crate) mod paths {
    use super::{Deserializer, Serializer, Shown, list};
    use crate::path::EntryPath;

    pub(crate) fn serialize<S: Serializer>(paths: &[EntryPath], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(paths.iter().map(|path| Shown::from(path.as_bytes())))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<EntryPath>, D::Error> {
        Ok(list::deserialize(deserializer)?.into_iter().map(EntryPath::from).collect())
    }
}
