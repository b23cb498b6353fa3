//! Which stream a thing goes out on, and what waits while there is none.

use tokio::sync::mpsc::Receiver;

use crate::calls::ClientReply;
use crate::calls::StreamEvent;
use crate::catalog::Changes;
use crate::protocol::{ErrorKind, Failure, Method, RequestId, notification};
use crate::publisher::SessionEvent;
use crate::sessions::event_log::{EventLog, EventLogLimits, GENERAL_STREAM, ResumeOutcome};
use crate::sessions::message::OpenStream;
use crate::sessions::session::Session;
use crate::sessions::session::calls::{AnswerDestination, is_wanted};
use crate::sessions::session::requests::uri_params;

impl Session {
    pub(super) fn event_log(&mut self) -> &mut EventLog {
        let parts = &self.parts;
        self.event_log.get_or_insert_with(|| {
            let settings = parts.calls.settings.load();
            let limits = EventLogLimits {
                events_per_stream: settings.events_per_stream,
                bytes_max: settings.events_bytes_max,
                queue_max: settings.stream_queue_max,
            };
            Box::new(EventLog::new(limits, parts.epoch()))
        })
    }

    /// Turns a waiting JSON answer into an event stream. True when the call has a stream now.
    pub(super) fn upgrade(&mut self, number: u64) -> bool {
        let priming = self.record.revision.has_priming_event();
        let Some(pending) = self.pending.get_mut(&number) else {
            return false;
        };
        let destination = std::mem::replace(&mut pending.destination, AnswerDestination::Dropped);
        let reply = match destination {
            AnswerDestination::Direct(reply) if pending.accepts_stream && !reply.is_closed() => {
                reply
            }
            other => {
                let streams = matches!(other, AnswerDestination::Stream);
                pending.destination = other;
                return streams;
            }
        };
        pending.destination = AnswerDestination::Stream;
        let request = pending.id.clone();
        let events = self.event_log().open(number, Some(request), priming);
        // If the client leaves right now, it finds the stream by its event ids.
        let _ = reply.send(ClientReply::Stream(events));
        true
    }

    pub(super) fn open_stream(&mut self, open: OpenStream) {
        let resumed = open.last_event_id.map(|id| self.event_log().resume(&id));
        self.had_stream = true;
        let events = match resumed {
            Some(ResumeOutcome::Stream(events)) => events,
            Some(ResumeOutcome::Gap(events)) => {
                self.mark_all_missed();
                events
            }
            // The TypeScript SDK comes back for every stream that ended without a result, and
            // after an empty answer to that it would open a second general stream.
            Some(ResumeOutcome::Over) => {
                let _ = open.reply.send(ClientReply::Over);
                return;
            }
            Some(ResumeOutcome::Unknown(Some(request))) => self.lost_answer(&request),
            Some(ResumeOutcome::Unknown(None)) => {
                // Of a process or an actor before this one.
                self.mark_all_missed();
                self.open_general()
            }
            None => self.open_general(),
        };
        let _ = open.reply.send(ClientReply::Stream(events));
        self.send_missed();
    }

    /// What happened since the client's last event is unknown.
    fn mark_all_missed(&mut self) {
        self.missed.lists = Changes::all();
        let subscriptions = self.record.subscriptions.iter();
        self.missed.uris = subscriptions.map(|one| one.public.clone()).collect();
    }

    fn open_general(&mut self) -> Receiver<StreamEvent> {
        let priming = self.record.revision.has_priming_event();
        self.event_log().open(GENERAL_STREAM, None, priming)
    }

    /// The stream of a call that this actor never saw: the call was running when the gateway or
    /// the session's actor died.
    fn lost_answer(&mut self, request: &RequestId) -> Receiver<StreamEvent> {
        let message = "the answer was lost when the gateway restarted; the call may have run";
        let failure = Failure::new(ErrorKind::ServerLost, message);
        let number = self.parts.calls.numbers.next();
        let streams = self.event_log();
        let events = streams.open(number, Some(request.clone()), false);
        streams.answer(number, failure.answer(request.as_str()).as_bytes());
        events
    }

    pub(super) fn on_session_event(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::OwnViewsChanged => {
                let own = self.parts.calls.catalog.own(&self.caller);
                if own.is_some() || self.view.is_some() {
                    let before = self.catalog();
                    self.view = own;
                    self.missed.lists |= self.catalog().changes_since(&before);
                }
            }
            // A session with its own view hears of changes when that view is replaced.
            SessionEvent::ListsChanged(changes) if self.view.is_none() => {
                self.missed.lists |= changes
            }
            SessionEvent::ListsChanged(_) => {}
            SessionEvent::ResourceUpdated { uri, frame } => {
                let public = self.is_subscribed(&uri);
                if public && self.general_has_reader() {
                    self.event_log().send(GENERAL_STREAM, &frame);
                } else if public {
                    self.missed.uris.insert(uri);
                }
            }
            SessionEvent::Log {
                level,
                audience,
                frame,
            } => {
                let shares = audience.is_none_or(|audience| audience == self.caller.audience());
                if shares && is_wanted(self.record.level, level) && self.general_has_reader() {
                    self.event_log().send(GENERAL_STREAM, &frame);
                }
            }
            // For clients without a session; others are told by the connection of the call.
            SessionEvent::Task { .. } => {}
            SessionEvent::ElicitationComplete { id, frame } => {
                if self.elicitations.remove(&id) && self.general_has_reader() {
                    self.event_log().send(GENERAL_STREAM, &frame);
                }
            }
        }
        self.send_missed();
    }

    pub(super) fn general_has_reader(&self) -> bool {
        self.event_log
            .as_ref()
            .is_some_and(|streams| streams.has_reader(GENERAL_STREAM))
    }

    /// Sends what waited for a general stream, once.
    fn send_missed(&mut self) {
        if !self.general_has_reader() {
            return;
        }
        let missed = std::mem::take(&mut self.missed);
        let lists = [
            (missed.lists.tools, Method::ToolsListChanged),
            (missed.lists.prompts, Method::PromptsListChanged),
            (missed.lists.resources, Method::ResourcesListChanged),
        ];
        for (_, method) in lists.iter().filter(|(changed, _)| *changed) {
            self.event_log()
                .send(GENERAL_STREAM, &notification::<()>(method, None));
        }
        for uri in &missed.uris {
            let frame = notification(&Method::ResourcesUpdated, Some(&uri_params(uri)));
            self.event_log().send(GENERAL_STREAM, &frame);
        }
        self.send_missed_tasks();
    }
}
