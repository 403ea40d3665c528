//! Texts of symbolic links with a prefix that makes the links unusable where they are kept
//! (`--munge-links`), as in rsync.

use dsync_wire::{
    message::{Entry, EntryKind},
    options::{MUNGED, SyncOptions},
};

/// Takes the prefix off a link's text at a source that keeps links with it.
pub(crate) fn off(text: Vec<u8>, options: &SyncOptions) -> Vec<u8> {
    match text.strip_prefix(MUNGED) {
        Some(rest) if options.munge_links.source && !rest.is_empty() => rest.to_vec(),
        _ => text,
    }
}

/// Returns a listed link with the prefix that a destination puts before its text; `None` for an
/// entry that stays as it is.
pub(crate) fn on(entry: &Entry, options: &SyncOptions) -> Option<Entry> {
    match &entry.kind {
        // Without a text it is not copied.
        EntryKind::Symlink { target } if options.munge_links.destination && !target.is_empty() => {
            let kind = EntryKind::Symlink { target: [MUNGED, target].concat() };
            Some(Entry { kind, ..entry.clone() })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use dsync_wire::options::MungeLinks;

    use super::*;

    #[test]
    fn the_prefix_is_taken_off_once_and_never_leaves_nothing() {
        let munge_links = MungeLinks::default().source(true).destination(false);
        let options = SyncOptions::default().munge_links(munge_links);
        for (text, wanted) in [
            ("/rsyncd-munged/a", "a"),
            ("/rsyncd-munged//rsyncd-munged/a", "/rsyncd-munged/a"),
            ("/rsyncd-munged/", "/rsyncd-munged/"),
            ("rsyncd-munged/a", "rsyncd-munged/a"),
        ] {
            assert_eq!(off(text.into(), &options), wanted.as_bytes(), "{text}");
            assert_eq!(off(text.into(), &SyncOptions::default()), text.as_bytes());
        }
    }
}
