//! Messages of the probe: keys of series for which no slot was free.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use biolat_common::series::Key;
use log::{Log, Metadata, Record};

/// Where messages are put until they are asked for.
#[derive(Clone, Default)]
pub(super) struct Messages(Arc<Mutex<BTreeSet<Key>>>);

impl Messages {
    /// All that were put here since the last time.
    pub(super) fn take(&self) -> BTreeSet<Key> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Log for Messages {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        match record.args().to_string().parse() {
            Ok(bits) => {
                self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(Key::from_bits(bits));
            }
            Err(_) => log::logger().log(record),
        }
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use biolat_common::series::Key;
    use log::{Log as _, Record};

    use super::Messages;

    #[test]
    fn a_key_is_heard_once() {
        let messages = Messages::default();
        let key = Key::new(45, 1);
        for _ in 0..2 {
            messages.log(&Record::builder().args(format_args!("{}", key.bits())).build());
        }
        assert_eq!(messages.take().into_iter().collect::<Vec<_>>(), [key]);
        assert!(messages.take().is_empty());
    }
}
