//! Caches an encoded part of the state until it changes.

use prost::{Message, encoding::bytes};

/// A record as it was last encoded; empty if it has changed since.
#[derive(Default)]
pub(in crate::collector) struct Encoded(Vec<u8>);

impl Encoded {
    /// Drops the encoded record. Must be called whenever anything in the record changes.
    pub(in crate::collector) fn forget(&mut self) {
        self.0.clear();
    }

    /// Appends the record to the state as a field.
    pub(in crate::collector) fn append<R: Message>(
        &mut self,
        field: u32,
        record: impl Fn() -> R,
        state: &mut Vec<u8>,
    ) {
        if self.0.is_empty() {
            // Encoding into a vector cannot fail.
            let _ = record().encode(&mut self.0);
        }
        debug_assert!(
            self.0 == record().encode_to_vec(),
            "a record of field {field} has changed, and was not forgotten"
        );
        bytes::encode(field, &self.0, state);
    }
}
