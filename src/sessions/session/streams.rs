//! Selects the stream for each outgoing message, and keeps messages while no stream is open.

use actix::{AsyncContext, Context};
use bytes::Bytes;
use serde_json::json;
use tokio::sync::mpsc::Receiver;
use tokio::time::Instant;

use crate::bridge::seal::Digest;
use crate::calls::{
    ClientReply, EventLog, EventLogLimits, GENERAL_STREAM, ResumeOutcome, StreamEvent, tasks,
};
use crate::catalog::Changes;
use crate::downstream::ConnectionCommand;
use crate::id::ServerName;
use crate::protocol::{
    ErrorKind, Failure, LogLevel, Method, Notification, RequestId, notification,
};
use crate::publisher::SessionEvent;
use crate::sessions::changed_lists;
use crate::sessions::message::OpenStream;
use crate::sessions::session::Session;

/// Maximum number of completed elicitations that wait for a stream; more are dropped.
const COMPLETIONS_MAX: usize = 64;

/// Maximum size of a completed elicitation that is kept, in bytes.
const COMPLETION_BYTES_MAX: usize = 4 * 1024;

impl Session {
    /// Returns the session's event streams.
    pub(super) fn streams(&mut self) -> &mut EventLog {
        let context = &self.context;
        self.event_log.get_or_insert_with(|| {
            let settings = context.calls.settings.load();
            let limits = EventLogLimits {
                events_per_stream: settings.events_per_stream,
                bytes_max: settings.events_bytes_max,
                all_bytes_max: settings.events_bytes_all_max,
                queue_max: settings.stream_queue_max,
                queue_bytes_max: settings.stream_queue_bytes_max,
                finished_kept: settings.finished_kept,
            };
            Box::new(EventLog::new(limits, context.epoch(), &context.kept_events))
        })
    }

    /// Starts the timer that drops ended streams, unless it is running.
    pub(super) fn plan_drop(&mut self, ctx: &mut Context<Self>) {
        let log = self.event_log.as_ref();
        let next = log.filter(|_| !self.is_drop_planned);
        let Some(at) = next.and_then(|log| log.next_drop()) else {
            return;
        };
        self.is_drop_planned = true;
        ctx.run_later(at.duration_since(Instant::now()), |session, ctx| {
            session.is_drop_planned = false;
            if let Some(log) = &mut session.event_log {
                log.drop_finished();
            }
            session.event_log.take_if(|log| log.is_empty());
            session.plan_drop(ctx);
        });
    }

    pub(super) fn open_stream(&mut self, open: OpenStream) {
        if let Some(scopes) = open.scopes {
            self.use_scopes(scopes);
        }
        let resumed = open.last_event_id.map(|id| self.streams().resume(&id));
        self.had_stream = true;
        self.set_used();
        let events = match resumed {
            Some(ResumeOutcome::Stream(events)) => events,
            Some(ResumeOutcome::Gap(events)) => {
                self.mark_all_missed();
                events
            }
            // The TypeScript SDK resumes every stream that ended without a result, and after an
            // empty answer it would open a second general stream.
            Some(ResumeOutcome::Over) => {
                let _ = open.reply.send(ClientReply::Over);
                return;
            }
            Some(ResumeOutcome::Unknown(Some(request))) => self.lost_answer(&request),
            Some(ResumeOutcome::Unknown(None)) => {
                // The id belongs to an earlier process or actor.
                self.mark_all_missed();
                self.open_general()
            }
            None => self.open_general(),
        };
        let _ = open.reply.send(ClientReply::Stream(events));
        let registry = self.context.calls.downstreams.subscription_registry();
        if registry.set_listening(self.id) {
            self.command_own_connections(&ConnectionCommand::Listen);
        }
        self.send_missed();
    }

    /// Marks everything as changed, because the events since the client's last one are unknown.
    fn mark_all_missed(&mut self) {
        self.missed.lists = Changes::all();
        let subscriptions = self.record.subscriptions.iter();
        self.missed.uris = subscriptions.map(|one| one.public.clone()).collect();
    }

    fn open_general(&mut self) -> Receiver<StreamEvent> {
        let priming = self.record.revision.has_priming_event();
        self.streams().open(GENERAL_STREAM, None, priming)
    }

    /// Returns the stream of a call that this actor does not know, because the call was in flight
    /// when the gateway or the session's actor died.
    fn lost_answer(&mut self, request: &RequestId) -> Receiver<StreamEvent> {
        let message = "the answer was lost when the gateway restarted; the call may have run";
        let failure = Failure::new(ErrorKind::ServerLost, message);
        let number = self.context.calls.numbers.next();
        let streams = self.streams();
        let events = streams.open(number, Some(request.clone()), false);
        let answer = failure.answer(request.as_str());
        streams.answer(number, answer.as_bytes(), None);
        events
    }

    pub(super) fn on_session_event(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::OwnViewsChanged => {
                self.update_view();
                self.judge_subscriptions();
            }
            // A session with its own view receives changes when that view is replaced.
            SessionEvent::ListsChanged(changes) if self.view.is_none() => {
                self.missed.lists |= changes
            }
            SessionEvent::ListsChanged(_) => {}
            SessionEvent::ListsAnnounced(changes) => self.missed.lists |= changes,
            SessionEvent::ResourceUpdated { uri, frame } => {
                let public = self.is_subscribed(&uri);
                if public && self.general_has_reader() {
                    self.streams().send(GENERAL_STREAM, &frame);
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
                if shares && self.wants_log_line(level) && self.general_has_reader() {
                    self.streams().send(GENERAL_STREAM, &frame);
                }
            }
            // Only for sessionless clients; a session receives it from the call's connection.
            SessionEvent::Task { .. } => {}
            SessionEvent::ElicitationComplete {
                server,
                id,
                is_own,
                frame,
            } => {
                let is_asked = self.questions.complete_elicitation(server, id) || is_own;
                let has_room = self.missed.completions.len() < COMPLETIONS_MAX
                    && frame.len() <= COMPLETION_BYTES_MAX;
                if is_asked && self.general_has_reader() {
                    self.streams().send(GENERAL_STREAM, &frame);
                } else if is_asked && has_room {
                    self.missed.completions.push(frame);
                }
            }
            SessionEvent::Passed { frame } => {
                if self.is_initialized && self.general_has_reader() {
                    self.streams().send_if_room(GENERAL_STREAM, &frame);
                }
            }
        }
        self.send_missed();
    }

    /// Switches to the catalog that is now published for this session.
    pub(super) fn update_view(&mut self) {
        let own = self.context.calls.catalog.own(&self.caller);
        if own.is_some() || self.view.is_some() {
            let before = self.catalog();
            self.view = own;
            self.missed.lists |= self.catalog().changes_since(&before);
        }
    }

    /// Returns whether the client receives a log line of this level: every line until it sets a
    /// level.
    fn wants_log_line(&self, level: Option<LogLevel>) -> bool {
        let levels = self.record.level.zip(level);
        levels.is_none_or(|(threshold, level)| level >= threshold)
    }

    pub(super) fn general_has_reader(&self) -> bool {
        self.event_log
            .as_ref()
            .is_some_and(|streams| streams.has_reader(GENERAL_STREAM))
    }

    /// Sends the missed events once a general stream is open, the client is initialized, and no
    /// request waits for lists (whose answer will contain the changes).
    pub(super) fn send_missed(&mut self) {
        if !self.is_initialized || self.waiting > 0 || !self.general_has_reader() {
            return;
        }
        let missed = std::mem::take(&mut self.missed);
        for method in changed_lists(missed.lists) {
            let frame = notification::<()>(&method, None);
            self.streams().send(GENERAL_STREAM, &frame);
        }
        for uri in &missed.uris {
            let params = json!({ "uri": uri });
            let frame = notification(&Method::ResourcesUpdated, Some(&params));
            self.streams().send(GENERAL_STREAM, &frame);
        }
        for frame in &missed.completions {
            self.streams().send(GENERAL_STREAM, frame);
        }
        for frame in self.followed.take_missed() {
            self.streams().send(GENERAL_STREAM, &frame);
        }
    }

    /// Returns whether a notification under a call's number is about the call's task.
    pub(super) fn is_about_task(&self, number: u64, notification: &Notification) -> bool {
        notification.method == Method::TaskStatus
            || !self.followed.is_empty() && self.calls.get(number).is_none()
    }

    pub(super) fn on_task_notification(&mut self, number: u64, notification: &Notification) {
        let made_by = self.followed.server(number);
        let made_by = made_by.or_else(|| Some(self.calls.get(number)?.server()));
        let Some((server, declaration)) = made_by.map(|(name, by)| (name.clone(), by)) else {
            return;
        };
        let of_server = (&server, declaration);
        if notification.method == Method::TaskStatus {
            return self.on_task_status(number, notification, of_server);
        }
        let frame = self.followed.progress(number, notification);
        if let Some(frame) = frame.filter(|_| self.general_has_reader()) {
            let frame = self.with_public_ids(frame, of_server);
            // Progress that arrives faster than the client reads is dropped (S-PROG-03).
            self.streams().send_if_room(GENERAL_STREAM, &frame);
        }
    }

    /// Sends the status of a task. While no general stream is open, only the last status is kept.
    fn on_task_status(
        &mut self,
        number: u64,
        status: &Notification,
        of_server: (&ServerName, Digest),
    ) {
        let sealing = &self.context.calls.sealing;
        let public = tasks::public_status(status, of_server, &self.caller, sealing);
        let Some((frame, has_ended)) = public else {
            return;
        };
        let has_reader = self.general_has_reader();
        if has_reader {
            self.streams().send(GENERAL_STREAM, &frame);
        }
        let missed = (!has_reader).then_some(frame);
        self.followed.update(number, missed, has_ended);
    }

    /// Returns a server's frame with the task id that the client knows.
    pub(super) fn with_public_ids(&self, frame: Bytes, of_server: (&ServerName, Digest)) -> Bytes {
        let sealing = &self.context.calls.sealing;
        tasks::with_public_related(frame, of_server, &self.caller, sealing)
    }
}
