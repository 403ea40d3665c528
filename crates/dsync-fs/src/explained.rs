//! Paths that a run explains: which directories lead to them.

use crate::component::RelPath;

/// Paths below a transfer's root. Cost of a question: logarithmic in their number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Explained {
    /// Sorted by bytes.
    paths: Vec<Vec<u8>>,
}

impl Explained {
    /// Makes a set; `None` without paths, as such a run explains none.
    pub fn of(paths: &[impl AsRef<[u8]>]) -> Option<Self> {
        let mut paths: Vec<_> = paths.iter().map(|path| path.as_ref().to_vec()).collect();
        paths.sort_unstable();
        paths.dedup();
        (!paths.is_empty()).then_some(Self { paths })
    }

    /// Returns whether the path is one of them or on the way to one.
    pub fn concerns(&self, path: &[u8]) -> bool {
        self.paths.binary_search_by(|known| known.as_slice().cmp(path)).is_ok() || self.is_on_the_way(path)
    }

    /// Returns whether one of them is below the directory of this path.
    pub fn leads_on(&self, directory: &RelPath) -> bool {
        directory.is_root() || self.is_on_the_way(directory.as_bytes())
    }

    fn is_on_the_way(&self, path: &[u8]) -> bool {
        let below = [path, b"/"].concat();
        let first = self.paths.partition_point(|known| known.as_slice() < below.as_slice());
        self.paths.get(first).is_some_and(|known| known.starts_with(&below))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_the_directories_above_them_are_concerned() {
        let paths = ["a", "a-b", "a/b/c", "a.d/e", "z"].map(|path| path.as_bytes().to_vec());
        let explained = Explained::of(&paths).unwrap();
        for path in ["a", "a-b", "a/b/c", "a/b", "a.d", "a.d/e", "z"] {
            assert!(explained.concerns(path.as_bytes()), "{path}");
        }
        for path in ["a/c", "a/b/c/d", "a.", "b", "", "a/b/cc", "z/a"] {
            assert!(!explained.concerns(path.as_bytes()), "{path}");
        }
        for (path, leads) in [("a", true), ("a/b", true), ("a/b/c", false), ("a-b", false), ("a.d", true)] {
            assert_eq!(explained.leads_on(&RelPath::parse(path.as_bytes()).unwrap()), leads, "{path}");
        }
        assert!(explained.leads_on(&RelPath::root()));
        assert_eq!(Explained::of(&[""; 0]), None);
    }
}
