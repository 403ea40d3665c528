//! The names that rules leave out of a directory's listing.
//!
//! The law: a name is left out only if the walk that listed the directory would not take an entry of
//! it, whatever that is by now, and if the rules do not depend on it. A file of rules always counts.

use crate::{
    dir::Dir,
    filter::{Scope, Within},
};

/// The rules of one listing of a directory.
#[derive(Debug)]
pub(crate) struct LeftOut {
    scope: Scope,
    within: Within,
    /// Whether a link may count as the directory that it leads to.
    follows: bool,
    /// Whether the disk has names as the rules spell them.
    is_verbatim: bool,
}

impl LeftOut {
    /// Takes the rules in force in a directory; `within` judges its entries.
    pub(crate) fn new(dir: &Dir, scope: &Scope, within: &Within, follows: bool) -> Self {
        // An open directory would keep its filesystem from being unmounted between two runs.
        let scope = scope.without_root();
        Self { scope, within: within.clone(), follows, is_verbatim: dir.spelling().is_none() }
    }

    /// Returns whether entries of any name may have rules.
    pub(super) fn depends_on_any_name(&self) -> bool {
        self.scope.depends_on_others()
    }

    /// Returns whether the listing leaves out the entry of this name.
    pub(super) fn has(&mut self, name: &[u8], is_dir: bool) -> bool {
        let Self { scope, within, follows, is_verbatim } = self;
        let kinds: &[bool] = if !is_dir && *follows { &[false, true] } else { &[is_dir] };
        *is_verbatim
            && !scope.depends_on(name)
            && kinds.iter().all(|&is_dir| within.excludes(scope, name, is_dir))
    }
}
