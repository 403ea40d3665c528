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
    /// Rewrites a job that was narrowed to some entries, so that it copies only those. It stays whole where
    /// only the whole job does them all. The entries of a manifest are [taken](Self::take_names) later.
    pub(super) fn narrow(&mut self) {
        let Some(entries) = self.only.clone().filter(|entries| !entries.is_empty()) else { return };
        if self.files_from.is_some() {
            return self.narrow_list(&entries);
        }
        let narrowed = retry::narrowed(&self.source, &self.destination, &self.options, &entries);
        if let Some((source, destination, options)) = narrowed {
            (self.source, self.destination, self.options) = (source, destination, options);
        }
    }

    /// Narrows a job with a list of paths, which has one source.
    fn narrow_list(&mut self, entries: &[EntryPath]) {
        let Some(FilesFrom::List(list)) = &self.files_from else { return };
        let root = match &self.source {
            Source::Local { paths } => paths.first().map(|path| path.as_os_str()),
            Source::Remote { paths, .. } | Source::Peer { paths } => paths.first().map(OsString::as_os_str),
            Source::Files { .. } | Source::Manifest { .. } | Source::Batch(_) => None,
        };
        let Some(root) = root else { return };
        let lists = (list, self.resources.file_list(true));
        // Without room for another list the whole job is made again.
        if let Ok(Some((list, options))) = retry::narrowed_list(root, lists, &self.options, entries) {
            (self.files_from, self.options) = (Some(FilesFrom::List(list)), options);
        }
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
                let only = self.only.as_ref().and_then(|entries| retry::named(root, entries));
                let all = || RelativePaths::of_manifest(manifest);
                (root, only.map_or_else(all, Ok)?)
            }
            _ => return Ok(()),
        };
        let list = relative.list(&self.resources, cancel)?;

        self.files_from = Some(FilesFrom::List(list));
        self.source = Source::Local { paths: vec![root.clone()] };
        Ok(())
    }
}
