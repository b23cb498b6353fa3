//! Faults of the gateway that two peers see while they speak through it.

use std::sync::{Arc, Mutex};

/// Faults in messages that came out of the gateway, shared by both peers.
#[derive(Clone, Default)]
pub(crate) struct Verdicts(Arc<Mutex<Vec<String>>>);

impl Verdicts {
    pub(crate) fn note(&self, fault: String) {
        let mut faults = self.0.lock().unwrap();
        if !faults.contains(&fault) {
            faults.push(fault);
        }
    }

    /// Notes what is wrong, if anything.
    pub(crate) fn unless<T>(&self, who: &str, checked: Result<T, String>) {
        if let Err(fault) = checked {
            self.note(format!("to the {who}: {fault}"));
        }
    }

    /// Takes what was noted so far.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}
