//! Arrays of numbers as the state has them.

/// As many numbers as the array has. `None` if there are not so many.
pub(in crate::collector) fn array<T: Copy, const N: usize>(numbers: &[T]) -> Option<[T; N]> {
    numbers.try_into().ok()
}
