//! Arrays of numbers in the state.

/// Converts a slice to an array; `None` if the length differs.
pub(in crate::collector) fn array<T: Copy, const N: usize>(numbers: &[T]) -> Option<[T; N]> {
    numbers.try_into().ok()
}
