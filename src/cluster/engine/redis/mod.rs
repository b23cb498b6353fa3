//! Valkey or Redis as the engine.

mod address;
mod check;
mod link;
mod rows;
mod scripts;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use redis::{Cmd, FromRedisValue, Pipeline, Script, Value, cmd, from_redis_value};
use tokio::runtime::Handle;
use uuid::Uuid;

use super::{
    Asked, BeatOutcome, Engine, EngineEpoch, EngineError, MemberRecord, Members, RecordAct,
    RecordAnswer, RecordOrder, RecordRow,
};
use crate::cluster::ids::{Incarnation, REPLICAS_MAX, ReplicaNumber, ReplicaRef};
pub use address::{EngineSpec, InvalidEngine};
pub use check::{EngineFacts, check_engine};
use link::Link;
use rows::{answer_of, client_ip, info, joined_of, lifetime, living_of, record_of};
use scripts::{INCARNATION, MEMBER, RECORD};

/// The engine behind an address. All keys begin with one prefix.
pub(in crate::cluster) struct RedisEngine {
    link: Arc<Link>,
    prefix: String,
}

impl RedisEngine {
    /// Begins to connect. Connections run on `runtime`.
    pub(in crate::cluster) fn open(spec: EngineSpec, prefix: &str, runtime: &Handle) -> Self {
        Self {
            link: Link::open(spec, runtime),
            prefix: prefix.to_owned(),
        }
    }

    fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.prefix)
    }

    fn member_key(&self, number: ReplicaNumber) -> String {
        self.key(&format!("m:{number}"))
    }

    /// Sends one command and reads its answer.
    async fn ask<T: FromRedisValue>(&self, command: Cmd) -> Result<T, EngineError> {
        let mut commands = Pipeline::with_capacity(1);
        commands.add_command(command);
        read(self.link.send(commands).await?.into_iter().next())
    }

    fn order(&self, name: &str, order: RecordOrder) -> Cmd {
        let key = self.key(&format!("s:{name}"));
        let call = |act| {
            let mut command = call(&RECORD, &[&key], act);
            command.arg(order.replica.to_string()).arg(order.term.0);
            command
        };
        let written = |act, record: &[u8], ttl| {
            let mut command = call(act);
            command.arg(record).arg(lifetime(ttl));
            command
        };
        match order.act {
            RecordAct::Open { record, ttl } => written("open", &record, ttl),
            RecordAct::Save { record, ttl } => written("save", &record, ttl),
            RecordAct::Field { name, value } => {
                let mut command = call("field");
                command.arg(format!("f{name}")).arg(value.as_deref());
                command
            }
            RecordAct::Claim { expected } => {
                let mut command = call("claim");
                command.arg(expected.map_or_else(String::new, |owner| owner.to_string()));
                command
            }
            RecordAct::Release => call("release"),
            RecordAct::End => call("end"),
        }
    }

    fn member(&self, act: &str, replica: ReplicaRef) -> Cmd {
        let keys = [self.member_key(replica.number), self.key("members")];
        let mut command = call(&MEMBER, &[&keys[0], &keys[1]], act);
        command.arg(replica.incarnation.0).arg(replica.number.0);
        command
    }

    /// The call that writes a member.
    fn write(&self, act: &str, member: &MemberRecord, ttl: Duration) -> Cmd {
        let mut command = self.member(act, member.replica());
        command.arg(&member.instance).arg(lifetime(ttl));
        command.arg(serde_json::to_string(member).unwrap_or_default());
        command
    }

    /// Sends a command, if there is one, and reads all members after it.
    async fn members_after(&self, first: Option<Cmd>) -> Result<(Value, Members), EngineError> {
        let numbers = (1..=REPLICAS_MAX).map(ReplicaNumber);
        let lives: Vec<_> = numbers.map(|number| self.member_key(number)).collect();
        let (counters, mark) = (self.key("c"), Uuid::new_v4().to_string());
        let mut commands = Pipeline::new();
        commands.add_command(first.unwrap_or_else(|| cmd("TIME")));
        commands.cmd("HGETALL").arg(self.key("members"));
        commands.cmd("MGET").arg(lives);
        commands.cmd("HSETNX").arg(&counters).arg("mark").arg(mark);
        commands.cmd("HGET").arg(&counters).arg("mark");
        commands.cmd("INFO").arg("server");
        let answers = self.link.send(commands).await?;
        let [first, joined, lives, _, mark, server] =
            <[Value; 6]>::try_from(answers).map_err(|_| EngineError::Damaged)?;
        let lives: Vec<Option<String>> = read(Some(lives))?;
        let server: String = read(Some(server))?;
        let members = Members {
            joined: joined_of(&read(Some(joined))?),
            living: living_of(&lives),
            epoch: EngineEpoch {
                run: info(&server, "run_id").unwrap_or_default().to_owned(),
                mark: read(Some(mark))?,
            },
        };
        Ok((first, members))
    }
}

/// Reads an answer.
fn read<T: FromRedisValue>(answer: Option<Value>) -> Result<T, EngineError> {
    from_redis_value(answer.unwrap_or(Value::Nil)).map_err(|_| EngineError::Damaged)
}

/// The call of a script. More arguments can follow.
fn call(script: &Script, keys: &[&str], act: &str) -> Cmd {
    let mut command = cmd("EVALSHA");
    command
        .arg(script.get_hash())
        .arg(keys.len())
        .arg(keys)
        .arg(act);
    command
}

impl Engine for RedisEngine {
    fn records(&self, orders: Vec<(String, RecordOrder)>) -> Asked<'_, Vec<RecordAnswer>> {
        let mut commands = Pipeline::with_capacity(orders.len());
        for (name, order) in orders {
            commands.add_command(self.order(&name, order));
        }
        async move {
            let answers = self.link.send(commands).await?.into_iter();
            answers
                .map(|answer| Ok(answer_of(read(Some(answer))?)))
                .collect()
        }
        .boxed()
    }

    fn record(&self, name: String) -> Asked<'_, Option<RecordRow>> {
        let mut command = cmd("HGETALL");
        command.arg(self.key(&format!("s:{name}")));
        async move { record_of(self.ask(command).await?) }.boxed()
    }

    fn next_incarnation(&self) -> Asked<'_, Incarnation> {
        let command = call(&INCARNATION, &[&self.key("c")], "");
        async move { self.ask(command).await.map(Incarnation) }.boxed()
    }

    fn take_number(&self, member: MemberRecord, ttl: Duration) -> Asked<'_, bool> {
        self.ask(self.write("take", &member, ttl)).boxed()
    }

    fn beat(&self, member: MemberRecord, ttl: Duration) -> Asked<'_, (BeatOutcome, Members)> {
        async move {
            let beat = self.members_after(Some(self.write("beat", &member, ttl)));
            let beat = beat.await;
            self.link.check(beat.as_ref().err()).await;
            let (outcome, members) = beat?;
            let outcome = match read::<i64>(Some(outcome))? {
                1 => BeatOutcome::Kept,
                0 => BeatOutcome::Replaced,
                _ => BeatOutcome::Expired,
            };
            Ok((outcome, members))
        }
        .boxed()
    }

    fn members(&self) -> Asked<'_, Members> {
        async move { Ok(self.members_after(None).await?.1) }.boxed()
    }

    fn leave(&self, member: ReplicaRef) -> Asked<'_, ()> {
        let asked = self.ask::<i64>(self.member("leave", member));
        async move { asked.await.map(|_| ()) }.boxed()
    }

    fn own_address(&self) -> Asked<'_, Option<String>> {
        let mut command = cmd("CLIENT");
        command.arg("INFO");
        async move { Ok(client_ip(&self.ask::<String>(command).await?)) }.boxed()
    }

    fn failures(&self) -> u64 {
        self.link.failures()
    }
}
