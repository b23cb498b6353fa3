//! Types of the Model Context Protocol, without I/O, clock or actors.
//!
//! Payloads keep the sender's bytes: [`Envelope`] finds, in one pass, the parts that the gateway
//! acts on, and [`splice`] replaces only those.

mod declared_capabilities;
mod envelope;
mod error;
mod extension;
mod folding;
mod header;
pub mod json;
mod json_bounds;
mod log_level;
mod method;
mod revision;

pub use declared_capabilities::{CAPABILITIES_BYTES_MAX, DeclaredCapabilities};
pub(crate) use envelope::our_number;
pub use envelope::{
    Edit, Envelope, EnvelopeError, Notification, Outcome, ParamSpans, RawJson, Request, RequestId,
    Response, Span, cancelled, error_frame, notification, request, result_frame,
    result_frame_from_parts, splice, without_bom,
};
pub use error::{ErrorKind, Failure, code, retry_after_seconds};
pub use extension::{
    Extension, ExtensionMethod, KNOWN_EXTENSIONS, MemberPath, Route, SKILLS_EXTENSION, SKILLS_GET,
    TASKS_EXTENSION, UI_EXTENSION, each_member, extension_method, is_declared, known_extension,
    merge_settings,
};
pub use folding::folded;
pub use header::sole_header;
pub use json_bounds::{DEPTH_MAX, is_too_deep, parse_bounded};
pub use log_level::LogLevel;
pub use method::{Method, MethodName};
pub use revision::{Era, Revision};
