//! Rules by which some names of extended attributes are out of scope.
//!
//! Attributes are read and set below, and rules are compiled above: each knows this module, and
//! neither the other.

use std::{fmt, hash, ptr, sync::Arc};

/// Rules that judge the name of an attribute.
pub(crate) trait JudgesXattrs: fmt::Debug + Send + Sync {
    /// Returns whether the first rule that matches an attribute's name, name space included, is an
    /// exclude.
    fn excludes_xattr(&self, name: &[u8]) -> bool;
}

/// The rules by which some names of extended attributes are out of scope. Cheap to clone.
///
/// ```
/// use dsync_fs::{FilterSet, RuleSpec};
/// let rule = RuleSpec::from_modifiers(false, "!x", b"user.*").ok_or("no rule")?;
/// let rules = FilterSet::of(&[rule])?.xattr_rules();
/// assert!(rules.excludes(b"trusted.a") && !rules.excludes(b"user.a"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct XattrRules(Option<Arc<dyn JudgesXattrs>>);

impl XattrRules {
    pub(crate) fn of(rules: impl JudgesXattrs + 'static) -> Self {
        Self(Some(Arc::new(rules)))
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns whether the first rule that matches an attribute's name, name space included, is an
    /// exclude.
    pub fn excludes(&self, name: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|rules| rules.excludes_xattr(name))
    }
}

impl PartialEq for XattrRules {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other)),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

impl Eq for XattrRules {}

impl hash::Hash for XattrRules {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.is_empty().hash(state);
    }
}
