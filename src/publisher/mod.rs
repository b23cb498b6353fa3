//! Delivers what servers report outside of calls to sessions: changes of the merged catalog,
//! updated resources, log lines, task states.
//!
//! Servers report to the [`CatalogPublisher`], which queues their events. A single actor, the
//! dispatcher, takes them from the queue, merges the parts of all servers into the catalog that
//! readers access through [`CatalogView`], and sends [`SessionEvent`]s to [`Subscribers`], its only
//! view of sessions. The data is in `PublisherCore`, so that the next incarnation of the dispatcher
//! can continue after a crash.

mod catalog_publisher;
mod catalog_view;
mod definition_notices;
mod dispatcher;
mod event_budget;
mod first_listing;
mod freshness;
mod known_lists;
mod own_lists;
mod own_part;
mod part_store;
mod pin_orders;
mod pin_views;
mod pins;
mod publisher_core;
mod server_parts;
mod start_times;
mod subscribers;
mod views;

pub use catalog_publisher::CatalogPublisher;
pub use catalog_view::CatalogView;
pub use first_listing::FirstListWait;
pub use own_part::TREE_URI;
pub use part_store::{PartStore, load_parts};
pub use pin_views::{ApprovedPin, ListedDefinition, ListedState, PinDetail, PinView};
pub use pins::Pins;
pub use publisher_core::RestoredCatalog;
pub use server_parts::Arrangement;
pub use start_times::StartTimes;
pub use subscribers::{SessionEvent, Subscribers};
pub use views::NamedViews;

pub(crate) use known_lists::KnownList;
