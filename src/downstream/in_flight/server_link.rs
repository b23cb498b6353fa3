//! A link to a server, and how the server has to be addressed over it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use actix::Recipient;

use crate::bridge::meta::MetaDeclaration;
use crate::bridge::projection::client_capabilities;
use crate::bridge::task::{self, Task};
use crate::catalog::ServerPart;
use crate::downstream::call_request::ClientAnswer;
use crate::downstream::caller::Caller;
use crate::downstream::connection::spec::ConnectionSpec;
use crate::downstream::era::modern;
use crate::downstream::in_flight::pending_questions::PendingQuestions;
use crate::downstream::in_flight::task_request::{TaskRequest, is_created};
use crate::downstream::notification_budget::NotificationBudget;
use crate::downstream::shared_link::SharedLink;
use crate::id::ServerName;
use crate::protocol::{DeclaredCapabilities, Era, ErrorKind, Failure, Outcome, Response};

/// The last declaration, cached because most clients of a connection declare the same.
#[derive(Default)]
pub(super) struct DeclarationCache(
    RefCell<Option<(Era, DeclaredCapabilities, Rc<MetaDeclaration>)>>,
);

impl DeclarationCache {
    /// Declares to a sessionless server exactly what the client declared.
    pub(super) fn of(&self, caller: &Caller) -> Rc<MetaDeclaration> {
        let (era, profile) = (caller.revision.era(), &caller.profile);
        let mut last = self.0.borrow_mut();
        if let Some((of_era, of_profile, declaration)) = &*last
            && (of_era, of_profile) == (&era, profile)
        {
            return declaration.clone();
        }
        let declare = |declared| MetaDeclaration::new(modern::REVISION, declared);
        let declaration = Rc::new(match era {
            Era::Modern => declare(profile.as_map()),
            Era::Legacy => declare(&client_capabilities(profile.as_map(), modern::REVISION)),
        });
        *last = Some((era, profile.clone(), declaration.clone()));
        declaration
    }
}

pub(super) struct ServerLink {
    pub(super) spec: Arc<ConnectionSpec>,
    pub(super) link: Rc<SharedLink>,
    /// Questions to clients that belong to a call.
    pub(super) questions: PendingQuestions,
    pub(super) declared: DeclarationCache,
}

impl ServerLink {
    /// `asker` receives the clients' answers to questions.
    pub(super) fn new(
        spec: Arc<ConnectionSpec>,
        link: Rc<SharedLink>,
        asker: Recipient<ClientAnswer>,
    ) -> Self {
        Self {
            spec,
            link,
            questions: PendingQuestions::new(asker),
            declared: DeclarationCache::default(),
        }
    }

    pub(super) fn name(&self) -> &ServerName {
        &self.spec.server
    }

    pub(super) fn budget(&self) -> &NotificationBudget {
        &self.spec.of_server.notification_budget
    }

    /// Whether the transport has one stream per request.
    pub(super) fn knows_call_of_requests(&self) -> bool {
        self.spec.of_server.connector.knows_call_of_requests()
    }

    pub(super) fn next_wire_id(&self) -> u64 {
        self.spec.of_all.numbers.next()
    }

    pub(super) fn is_modern(&self) -> bool {
        self.link.is_modern.get()
    }

    /// Whether the server can cancel tasks; servers of 2025-11-25 declare it (S-LIFE-05).
    pub(super) fn takes_cancel(&self) -> bool {
        let part = self.spec.last_part.load();
        let declares = |part: &Arc<ServerPart>| task::supports_cancel(&part.capabilities);
        self.is_modern() || part.as_ref().is_none_or(declares)
    }

    /// Cancels a task that the server created for a call that was already cancelled.
    pub(super) fn cancel_late_task(&self, response: &Response) {
        if let Outcome::Result(result) = &response.outcome
            && !self.is_modern()
            && self.takes_cancel()
            && is_created(result)
            && let Some(task) = Task::from_legacy_created(result)
        {
            let cancel = TaskRequest::cancel(&task.id).legacy(self.next_wire_id());
            let _ = self.link.send(cancel);
        }
    }

    /// The failure of a call whose answer violates the protocol.
    pub(super) fn protocol_failure(&self, text: &str) -> Failure {
        let server = self.name();
        let message = format!("server `{server}`: {text}");
        Failure::new(ErrorKind::ServerProtocol, message).server(server.as_str())
    }
}
