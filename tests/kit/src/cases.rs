//! Fewer cases where each takes long.

/// All cases of a test, but in Miri only the first, as it needs seconds for each.
pub fn cases<T, const N: usize>(all: [T; N]) -> impl Iterator<Item = T> {
    all.into_iter().take(if cfg!(miri) { 1 } else { N })
}
