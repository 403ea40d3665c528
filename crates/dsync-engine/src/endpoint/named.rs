//! Jobs whose entries are named: by a list, an iterator or a manifest.

use std::ffi::OsString;

use dsync_wire::path::EntryPath;

use super::Job;
use crate::{
    CancelToken, RelativePaths, SyncError,
    ends::{FilesFrom, Source},
    retry,
};

impl Job {
    /// Narrows a job with a list of paths, which has one source.
    pub(super) fn only_of_list(mut self, entries: &[EntryPath]) -> Self {
        let Some(FilesFrom::List(list)) = &self.files_from else { return self };
        let root = match &self.source {
            Source::Local { paths } => paths.first().map(|path| path.as_os_str()),
            Source::Remote { paths, .. } | Source::Peer { paths } => paths.first().map(OsString::as_os_str),
            Source::Files { .. } | Source::Manifest { .. } | Source::Batch(_) => None,
        };
        let Some(root) = root else { return self };
        let lists = (list, self.resources.file_list(true));
        // Without room for another list the whole job is made again.
        if let Ok(Some((list, options))) = retry::narrowed_list(root, lists, &self.options, entries) {
            (self.files_from, self.options) = (Some(FilesFrom::List(list)), options);
        }
        self
    }

    /// Sets the options that a source of names has.
    pub(super) fn by_names(&mut self) {
        if matches!(self.source, Source::Files { .. } | Source::Manifest { .. }) {
            (self.options.relative, self.options.dirs, self.options.recursive) = (true, true, false);
        }
        if matches!(self.source, Source::Manifest { .. }) {
            (self.options.checksum, self.options.contents_as_listed) = (true, true);
        }
    }

    /// Turns a source of names into the list that they are.
    pub(super) fn take_names(&mut self, cancel: &CancelToken) -> Result<(), SyncError> {
        let (root, relative) = match &self.source {
            Source::Files { root, relative } => (root, relative.clone()),
            Source::Manifest { .. } if self.spelling.is_some() => {
                let why = "has two character sets, and a manifest names of one".to_owned();
                return Err(SyncError::InvalidOption { option: "spelling", why });
            }
            Source::Manifest { root, manifest } => {
                self.manifest = Some(manifest.clone());
                let all = || RelativePaths::of_manifest(manifest);
                (root, self.only.clone().map_or_else(all, Ok)?)
            }
            _ => return Ok(()),
        };
        let list = relative.list(&self.resources, cancel)?;

        self.files_from = Some(FilesFrom::List(list));
        self.source = Source::Local { paths: vec![root.clone()] };
        Ok(())
    }
}
