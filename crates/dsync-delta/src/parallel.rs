//! Work on all threads of the current rayon pool, or on the calling one without the feature `rayon`.

/// Maps items to results in their order, with a scratch value for each thread. Returns an error as
/// soon as one is known.
#[cfg(feature = "rayon")]
pub(crate) fn try_map<T, S, U, E>(
    items: Vec<T>,
    scratch: impl Fn() -> S + Sync + Send,
    work: impl Fn(&mut S, T) -> Result<U, E> + Sync + Send,
) -> Result<Vec<U>, E>
where
    T: Send,
    U: Send,
    E: Send,
{
    use rayon::prelude::*;

    items.into_par_iter().map_init(scratch, work).collect()
}

/// Maps items to results in their order. The bounds are those of the parallel twin, so that code
/// which compiles without threads also compiles with them.
#[cfg(not(feature = "rayon"))]
pub(crate) fn try_map<T, S, U, E>(
    items: Vec<T>,
    scratch: impl Fn() -> S + Sync + Send,
    work: impl Fn(&mut S, T) -> Result<U, E> + Sync + Send,
) -> Result<Vec<U>, E>
where
    T: Send,
    U: Send,
    E: Send,
{
    let mut scratch = scratch();
    items.into_iter().map(|item| work(&mut scratch, item)).collect()
}
