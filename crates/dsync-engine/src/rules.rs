//! The filter rules of a run, from the options to the rules of one end.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use dsync_fs::{
    Dir, FilterSet, OperandForm, RuleFileError, RuleFileFault, RuleOrigin, RuleSpec, Spelling, XattrRules,
};
use dsync_wire::{
    message::Cause,
    options::{FilterRule, SyncOptions},
    ruling::RulePlace,
};

use crate::SyncError;

/// The rules of a destination.
#[derive(Clone)]
pub(crate) struct Filters {
    /// Those by which the source lists.
    pub(crate) source: FilterSet,
    /// Those that protect from deletion.
    pub(crate) destination: FilterSet,
}

impl Filters {
    /// Compiles the filters, and reads the files of rules above the destination, as far as they are
    /// named; `contents` where the operands stand for the content of the root.
    ///
    /// # Errors
    /// As [`compile`] and [`above_source`].
    pub(crate) fn of(
        options: &SyncOptions,
        operand: &Path,
        contents: bool,
        (floor, spelling): (Option<&Arc<Dir>>, Option<Spelling>),
    ) -> Result<Self, SyncError> {
        let source = compile(options)?;
        let mut destination = source.clone().at_destination();
        let opens = options.delete && destination.has_files();
        let opened = || match floor {
            Some(floor) => floor.open_operand_above(operand),
            None => Dir::open_operand(operand),
        };
        // In one that does not exist there is nothing to protect.
        if let Some(Ok(dir)) = opens.then(opened) {
            let dir = dir.with_spelling(spelling);
            destination.read_above(&dir, floor.map(|floor| &**floor), !contents).map_err(failed)?;
        }
        Ok(Self { source, destination })
    }
}

/// Compiles the filters, for the source's end.
///
/// # Errors
/// [`SyncError::BadPattern`]; [`SyncError::InvalidOption`] for modifiers that no rule has.
pub(crate) fn compile(options: &SyncOptions) -> Result<FilterSet, SyncError> {
    let specs = options.filters.iter().map(spec).collect::<Result<Vec<_>, _>>()?;
    of_specs(&specs, options)
}

/// Returns the rules about names of extended attributes, for the source's end.
///
/// # Errors
/// As [`compile`].
pub(crate) fn of_xattrs(options: &SyncOptions) -> Result<XattrRules, SyncError> {
    let specs = options.filters.iter().map(spec).filter(|spec| spec.as_ref().is_ok_and(|spec| spec.xattrs));
    Ok(of_specs(&specs.collect::<Result<Vec<_>, _>>()?, options)?.xattr_rules())
}

fn spec(rule: &FilterRule) -> Result<RuleSpec, SyncError> {
    let spec = RuleSpec::from_modifiers(rule.include, &rule.modifiers, &rule.pattern);
    let why = || "has modifiers that no rule has".to_owned();
    spec.ok_or_else(|| SyncError::InvalidOption { option: "filters", why: why() })
}

fn of_specs(specs: &[RuleSpec], options: &SyncOptions) -> Result<FilterSet, SyncError> {
    let set = FilterSet::of(specs).map_err(|error| SyncError::BadPattern {
        pattern: String::from_utf8_lossy(&error.pattern).into_owned(),
        column: error.column,
        reason: error.reason.as_str(),
    })?;
    Ok(set.deleting_excluded(options.delete && options.delete_excluded))
}

/// Reads the files of rules above the source's operands, as far as the filters name them.
///
/// # Errors
/// [`SyncError::RuleFile`].
pub(crate) fn above_source(
    mut filter: FilterSet,
    paths: &[PathBuf],
    (floor, spelling): (Option<&Arc<Dir>>, Option<Spelling>),
) -> Result<FilterSet, SyncError> {
    if !filter.has_files() {
        return Ok(filter);
    }

    for path in paths {
        let (dir, named) = match OperandForm::of(path) {
            Ok(OperandForm::Contents(dir)) => (dir, false),
            Ok(OperandForm::Entry { parent, .. }) => (parent, true),
            Err(_) => continue,
        };
        let dir = match floor {
            Some(floor) => floor.open_operand_above(&dir),
            None => Dir::open_operand(&dir),
        };
        // One that cannot be opened is reported when it is walked.
        if let Ok(dir) = dir {
            let dir = dir.with_spelling(spelling);
            filter.read_above(&dir, floor.map(|floor| &**floor), named).map_err(failed)?;
        }
    }
    Ok(filter)
}

/// Returns the place of a rule as the other end knows it.
pub(crate) fn place(origin: &RuleOrigin) -> RulePlace {
    match origin {
        RuleOrigin::Command(at) => RulePlace::Command(u32::try_from(*at).unwrap_or(u32::MAX)),
        RuleOrigin::File { path, line } => RulePlace::File { path: (&**path).into(), line: *line },
        _ => RulePlace::PartialDir,
    }
}

/// Returns the error for a file of rules above a tree.
fn failed(error: RuleFileError) -> SyncError {
    let cause = match &error.fault {
        RuleFileFault::Read(error) => error.raw_os_error().map_or(Cause::Unrepresentable, Cause::Os),
        fault => cause(fault),
    };
    SyncError::RuleFile { path: OsString::from_vec(error.path).into(), cause }
}

/// Returns the cause that a fault of a file of rules stands for; reading has causes of its own.
pub(crate) fn cause(fault: &RuleFileFault) -> Cause {
    match fault {
        RuleFileFault::Line { line } => Cause::BadRule(*line),
        RuleFileFault::TooMuch => Cause::TooManyRules,
        RuleFileFault::LeadsOut => Cause::LeadsOut,
        _ => Cause::Unrepresentable,
    }
}
