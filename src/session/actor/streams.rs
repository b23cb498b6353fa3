//! Which stream a thing goes out on, and what waits while there is none.

use bytes::Bytes;

use super::super::message::{Notice, OpenStream, ToFront};
use super::super::streams::{GENERAL, Resumed, StreamLimits, Streams};
use super::Session;
use super::calls::{Outlet, is_wanted};
use super::requests::updated_frame;
use crate::catalog::Changes;
use crate::protocol::{ErrorKind, Failure, Method, RequestId, notification};

impl Session {
    pub(super) fn streams(&mut self) -> &mut Streams {
        let parts = &self.parts;
        self.streams.get_or_insert_with(|| {
            let settings = parts.settings.load();
            let limits = StreamLimits {
                events_per_stream: settings.events_per_stream,
                bytes_max: settings.events_bytes_max,
                queue_max: settings.stream_queue_max,
            };
            Box::new(Streams::new(limits, parts.epoch()))
        })
    }

    /// Turns a waiting JSON answer into an event stream. True when the call has a stream now.
    pub(super) fn upgrade(&mut self, number: u64) -> bool {
        let priming = self.record.revision.has_priming_event();
        let Some(pending) = self.pending.get_mut(&number) else {
            return false;
        };
        let outlet = std::mem::replace(&mut pending.outlet, Outlet::Nowhere);
        let reply = match outlet {
            Outlet::Direct(reply) if pending.accepts_stream && !reply.is_closed() => reply,
            other => {
                let streams = matches!(other, Outlet::Stream);
                pending.outlet = other;
                return streams;
            }
        };
        pending.outlet = Outlet::Stream;
        let request = pending.id.clone();
        let events = self.streams().open(number, Some(request), priming);
        // If the client leaves right now, it finds the stream by its event ids.
        let _ = reply.send(ToFront::Stream(events));
        true
    }

    pub(super) fn open_stream(&mut self, open: OpenStream) {
        let resumed = open.last_event_id.map(|id| self.streams().resume(&id));
        self.had_stream = true;
        let events = match resumed {
            Some(Resumed::Stream(events)) => events,
            Some(Resumed::Gap(events)) => {
                self.miss_everything();
                events
            }
            // The TypeScript SDK comes back for every stream that ended without a result, and
            // after an empty answer to that it would open a second general stream.
            Some(Resumed::Over) => {
                let _ = open.reply.send(ToFront::Over);
                return;
            }
            Some(Resumed::Unknown(Some(request))) => self.lost_answer(&request),
            Some(Resumed::Unknown(None)) => {
                // Of a process or an actor before this one.
                self.miss_everything();
                self.open_general()
            }
            None => self.open_general(),
        };
        let _ = open.reply.send(ToFront::Stream(events));
        self.send_missed();
    }

    /// What happened since the client's last event is unknown.
    fn miss_everything(&mut self) {
        self.missed.lists = Changes::all();
        let subscriptions = self.record.subscriptions.iter();
        self.missed.uris = subscriptions.map(|one| one.public.clone()).collect();
    }

    fn open_general(&mut self) -> tokio::sync::mpsc::Receiver<Bytes> {
        let priming = self.record.revision.has_priming_event();
        self.streams().open(GENERAL, None, priming)
    }

    /// The stream of a call that this actor never saw: the call was running when the gateway or
    /// the session's actor died.
    fn lost_answer(&mut self, request: &RequestId) -> tokio::sync::mpsc::Receiver<Bytes> {
        let message = "the answer was lost when the gateway restarted; the call may have run";
        let failure = Failure::new(ErrorKind::ServerLost, message);
        let number = self.parts.numbers.next();
        let streams = self.streams();
        let events = streams.open(number, Some(request.clone()), false);
        streams.send(number, failure.answer(request.as_str()).as_bytes());
        streams.end(number);
        events
    }

    pub(super) fn on_notice(&mut self, notice: Notice) {
        match notice {
            Notice::OwnViewsChanged => {
                let own = self.parts.catalog.own(&self.caller);
                if own.is_some() || self.view.is_some() {
                    let before = self.catalog();
                    self.view = own;
                    self.missed.lists |= self.catalog().changes_since(&before);
                }
            }
            // A session with its own view hears of changes when that view is replaced.
            Notice::ListsChanged(changes) if self.view.is_none() => self.missed.lists |= changes,
            Notice::ListsChanged(_) => {}
            Notice::ResourceUpdated { uri, frame } => {
                let public = self.is_subscribed(&uri);
                if public && self.general_is_read() {
                    self.streams().send(GENERAL, &frame);
                } else if public {
                    self.missed.uris.insert(uri);
                }
            }
            Notice::Log {
                level,
                audience,
                frame,
            } => {
                let shares = audience.is_none_or(|audience| audience == self.caller.audience());
                if shares && is_wanted(self.record.level, level) && self.general_is_read() {
                    self.streams().send(GENERAL, &frame);
                }
            }
            // For clients without a session; others are told by the connection of the call.
            Notice::Task { .. } => {}
            Notice::ElicitationComplete { id, frame } => {
                if self.elicitations.remove(&id) && self.general_is_read() {
                    self.streams().send(GENERAL, &frame);
                }
            }
        }
        self.send_missed();
    }

    pub(super) fn general_is_read(&self) -> bool {
        self.streams
            .as_ref()
            .is_some_and(|streams| streams.is_read(GENERAL))
    }

    /// Sends what waited for a general stream, once.
    fn send_missed(&mut self) {
        if !self.general_is_read() {
            return;
        }
        let missed = std::mem::take(&mut self.missed);
        let lists = [
            (missed.lists.tools, Method::ToolsListChanged),
            (missed.lists.prompts, Method::PromptsListChanged),
            (missed.lists.resources, Method::ResourcesListChanged),
        ];
        for (_, method) in lists.iter().filter(|(changed, _)| *changed) {
            self.streams()
                .send(GENERAL, &notification::<()>(method, None));
        }
        for uri in &missed.uris {
            let frame = notification(&Method::ResourcesUpdated, Some(&updated_frame(uri)));
            self.streams().send(GENERAL, &frame);
        }
        self.send_missed_tasks();
    }
}
