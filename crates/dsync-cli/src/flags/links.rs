//! Symbolic links of the source that are replaced by what they lead to, or made unusable.

use clap::Args;

use super::Group;

/// Links that are followed or munged.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Symbolic links")]
#[expect(clippy::struct_excessive_bools, reason = "one independent switch per option")]
pub(crate) struct FollowedLinks {
    /// Copy what symbolic links lead to, wherever that is, in place of the links
    ///
    /// A link that leads to nothing is named and left out, and so is one to a directory that the
    /// way there came through already: the run ends with exit code 23, and nothing is deleted. The
    /// links of other users are followed as well. A server under --restrict follows no link out of
    /// its directory.
    #[arg(short = 'L', long)]
    pub(crate) copy_links: bool,
    /// Copy symbolic links to directories as the directories that they lead to
    ///
    /// Other links stay links. What -L says of circles and of servers holds here too.
    #[arg(short = 'k', long)]
    pub(crate) copy_dirlinks: bool,
    /// Copy what a symbolic link leads to in its place if the link leads out of the copied tree
    ///
    /// Judged by the text of the link alone, as by --safe-links. What -L says of links to nothing,
    /// of circles and of servers holds here too.
    #[arg(long)]
    pub(crate) copy_unsafe_links: bool,
    /// Make links unusable where they are received, and usable again where they are sent from
    ///
    /// Puts '/rsyncd-munged/' before the text of a link, or takes it off. For the local end of a
    /// run, and the source of a local one; -M--munge-links is for the other end. With it,
    /// --safe-links at the receiving end leaves out every link.
    #[arg(long)]
    pub(crate) munge_links: bool,
}

impl Group for FollowedLinks {
    fn switches(&mut self) -> Vec<(&'static str, &mut bool)> {
        vec![
            ("copy_links", &mut self.copy_links),
            ("copy_dirlinks", &mut self.copy_dirlinks),
            ("copy_unsafe_links", &mut self.copy_unsafe_links),
            ("munge_links", &mut self.munge_links),
        ]
    }
}
