//! The edge that clients connect to.

mod settings;

pub use settings::FrontSettings;
