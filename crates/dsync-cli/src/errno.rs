//! Names of system errors, and the next step after a failed entry, for programs.

use dsync_engine::Cause;

/// Returns the name of a number of Linux; `UNKNOWN` for one that files do not meet.
pub(crate) fn name(number: i32) -> &'static str {
    NAMES.iter().find(|(known, _)| *known == number).map_or("UNKNOWN", |(_, name)| name)
}

/// Returns what to do about the cause of a failure, if anything is known to help.
pub(crate) fn cure(cause: Cause) -> Option<&'static str> {
    Some(match cause {
        Cause::Os(number) => match name(number) {
            "EPERM" | "EACCES" => {
                "change the permissions, or run dsync as a user who may; --fake-super keeps attributes of others"
            }
            "ENOSPC" | "EDQUOT" => "free some space, then run the same command again",
            "EROFS" => "mount the destination for writing",
            "EIO" => "check the disk, then run the same command again",
            "ENAMETOOLONG" => "shorten the name, or exclude the entry",
            "EBUSY" | "ETXTBSY" => "end what uses the entry, then run the same command again",
            "EOPNOTSUPP" => "leave out the option whose attributes the filesystem cannot hold",
            _ => return None,
        },
        Cause::Vanished | Cause::Changed | Cause::TypeChanged | Cause::ContentMismatch => {
            "run the same command again when nothing writes to the source"
        }
        Cause::DirectoryInTheWay => "move the directory away, or use --force or --delete",
        Cause::Unrepresentable => "rename the entry, or exclude it",
        Cause::FirstNameFailed => "mend the failure of the file's first name",
        Cause::FakeSuperDamaged => "correct or remove its attribute user.rsync.%stat",
        _ => return None,
    })
}

const NAMES: &[(i32, &str)] = &[
    (1, "EPERM"),
    (2, "ENOENT"),
    (4, "EINTR"),
    (5, "EIO"),
    (6, "ENXIO"),
    (7, "E2BIG"),
    (9, "EBADF"),
    (11, "EAGAIN"),
    (12, "ENOMEM"),
    (13, "EACCES"),
    (14, "EFAULT"),
    (16, "EBUSY"),
    (17, "EEXIST"),
    (18, "EXDEV"),
    (19, "ENODEV"),
    (20, "ENOTDIR"),
    (21, "EISDIR"),
    (22, "EINVAL"),
    (23, "ENFILE"),
    (24, "EMFILE"),
    (25, "ENOTTY"),
    (26, "ETXTBSY"),
    (27, "EFBIG"),
    (28, "ENOSPC"),
    (29, "ESPIPE"),
    (30, "EROFS"),
    (31, "EMLINK"),
    (32, "EPIPE"),
    (34, "ERANGE"),
    (36, "ENAMETOOLONG"),
    (38, "ENOSYS"),
    (39, "ENOTEMPTY"),
    (40, "ELOOP"),
    (61, "ENODATA"),
    (75, "EOVERFLOW"),
    (95, "EOPNOTSUPP"),
    (116, "ESTALE"),
    (117, "EUCLEAN"),
    (122, "EDQUOT"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_system() {
        for (number, name) in [
            (libc::EPERM, "EPERM"),
            (libc::EROFS, "EROFS"),
            (libc::ENAMETOOLONG, "ENAMETOOLONG"),
            (libc::ELOOP, "ELOOP"),
            (libc::EOPNOTSUPP, "EOPNOTSUPP"),
            (libc::ESTALE, "ESTALE"),
            (libc::EDQUOT, "EDQUOT"),
        ] {
            assert_eq!(super::name(number), name);
        }
        assert_eq!(name(-1), "UNKNOWN");
    }
}
