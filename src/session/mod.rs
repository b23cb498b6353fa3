//! One actor for each client session.

mod settings;

pub use settings::SessionSettings;
