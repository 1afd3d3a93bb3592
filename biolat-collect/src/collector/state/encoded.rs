//! A part of the state that is encoded again only after a change.

use prost::{Message, encoding::bytes};

/// A record as it was encoded last; empty if it has changed since.
#[derive(Default)]
pub(in crate::collector) struct Encoded(Vec<u8>);

impl Encoded {
    /// To be called when anything of the record changes.
    pub(in crate::collector) fn forget(&mut self) {
        self.0.clear();
    }

    /// Appends the record as a field of the state.
    pub(in crate::collector) fn append<R: Message>(
        &mut self,
        field: u32,
        record: impl Fn() -> R,
        state: &mut Vec<u8>,
    ) {
        if self.0.is_empty() {
            // A vector has room for any message.
            let _ = record().encode(&mut self.0);
        }
        debug_assert!(
            self.0 == record().encode_to_vec(),
            "a record of field {field} has changed, and was not forgotten"
        );
        bytes::encode(field, &self.0, state);
    }
}
