//! Names of system errors, and the next step after a failed entry, for programs.

use dsync_engine::{Cause, Operation, Problem, schema::errno_name};

/// Returns what to do about a failed entry, if anything is known to help.
pub(crate) fn cure(problem: &Problem) -> Option<&'static str> {
    Some(match problem.cause {
        // The key may only add: no name was in the way of a rename.
        Cause::Os(libc::EEXIST) if problem.operation == Operation::Commit => {
            "copy it to another name, or have the administrator there let the key replace what is there"
        }
        Cause::Os(number) => match errno_name(number).as_str() {
            "EPERM" | "EACCES" => {
                "change the permissions, or run dsync as a user who may; --fake-super keeps attributes of others"
            }
            "EEXIST" => {
                "rename the entry: its name is taken there, perhaps by one that the filesystem takes for the same, as without case"
            }
            "ENOSPC" | "EDQUOT" => "free some space, then run the same command again",
            "EFBIG" => {
                "raise the limit on file sizes (ulimit -f), or use a filesystem that takes files of that length"
            }
            "EROFS" => "mount the destination for writing",
            "EIO" => "check the disk, then run the same command again",
            "ENAMETOOLONG" => "shorten the name, or exclude the entry",
            "EILSEQ" => {
                "rename the entry, exclude it, or name character sets that have its letters (--iconv)"
            }
            "EMFILE" | "ENFILE" => {
                "raise the limit on open files (ulimit -n), then run the same command again"
            }
            "EAGAIN" => {
                "end what holds a lease on the file (a file server, for one of its clients), then run the same command again"
            }
            "EBUSY" | "ETXTBSY" => "end what uses the entry, then run the same command again",
            "E2BIG" => "shorten or remove some of the entry's extended attributes, or leave out -A and -X",
            "EOPNOTSUPP" => "leave out the option whose attributes the filesystem cannot hold",
            _ => return None,
        },

        Cause::Lacking { owner: true, .. } => {
            "leave out -o and -g (--no-o --no-g), keep owners as notes (--fake-super), or run dsync as a user who may give files away"
        }
        Cause::Lacking { .. } => "leave out -A or -X, or run dsync as a user who may set them",
        Cause::Vanished | Cause::Changed | Cause::TypeChanged | Cause::ContentMismatch => {
            "run the same command again when nothing writes to the source"
        }
        Cause::EmptySource => "mount what belongs there, or use --allow-empty-source",
        Cause::DirectoryInTheWay => "move the directory away, or use --force or --delete",
        Cause::Unrepresentable => "rename the entry, or exclude it",
        Cause::DeviceTooShort { .. } => "write to a device that is as long as the file",
        Cause::FirstNameFailed => "mend the failure of the file's first name",
        Cause::FakeSuperDamaged => "correct or remove its attribute user.rsync.%stat",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_not_be_replaced_is_not_cured_by_another_name_at_the_source() {
        let cure = |operation| cure(&Problem::new(operation, "f", Cause::Os(libc::EEXIST)));
        assert!(cure(Operation::Commit).is_some_and(|cure| cure.contains("let the key replace")));
        assert!(cure(Operation::CreateDirectory).is_some_and(|cure| cure.contains("without case")));
    }

    #[test]
    fn numbers_are_those_of_the_system() {
        for (number, name) in [
            (libc::EPERM, "EPERM"),
            (libc::EROFS, "EROFS"),
            (libc::ENAMETOOLONG, "ENAMETOOLONG"),
            (libc::ELOOP, "ELOOP"),
            (libc::EOPNOTSUPP, "EOPNOTSUPP"),
            (libc::ENOTSUP, "EOPNOTSUPP"),
            (libc::ESTALE, "ESTALE"),
            (libc::EDQUOT, "EDQUOT"),
        ] {
            assert_eq!(errno_name(number), name);
        }
        assert_eq!(errno_name(-1), "UnknownErrno");
    }
}
