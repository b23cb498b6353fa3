//! Valkey or Redis as the engine.

mod address;
mod check;
mod link;
mod rows;
mod scripts;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use redis::{Pipeline, Script, ToRedisArgs, Value, from_redis_value};
use tokio::runtime::Handle;
use uuid::Uuid;

use super::{
    BeatAnswer, BeatOutcome, Engine, EngineEpoch, EngineError, MemberRecord, RecordAnswer,
    RecordOrder,
};
use crate::cluster::ids::{Incarnation, REPLICAS_MAX, ReplicaNumber, ReplicaRef};
pub use address::{EngineSpec, InvalidEngine};
pub use check::{EngineFacts, check_engine};
use link::Link;
use rows::{answer_of, entry, joined_of, lifetime, member_of, owner_text, row, run_id};
use scripts::SCRIPTS;

/// The engine behind an address. All keys begin with one prefix.
pub struct RedisEngine {
    link: Arc<Link>,
    prefix: String,
}

impl RedisEngine {
    /// Begins to connect. Connections run on `runtime`.
    pub fn open(spec: EngineSpec, prefix: &str, runtime: Handle) -> Self {
        Self {
            link: Link::open(spec, runtime),
            prefix: prefix.to_owned(),
        }
    }

    fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.prefix)
    }

    fn member_key(&self, number: ReplicaNumber) -> String {
        format!("{}:m:{number}", self.prefix)
    }

    fn send(&self, commands: Pipeline) -> BoxFuture<'_, Result<Vec<Value>, EngineError>> {
        Arc::clone(&self.link).send(commands).boxed()
    }

    /// Sends commands and reads the first answer.
    fn ask<T: redis::FromRedisValue + Send + 'static>(
        &self,
        commands: Pipeline,
    ) -> BoxFuture<'_, Result<T, EngineError>> {
        let sent = Arc::clone(&self.link).send(commands);
        async move {
            let first = sent.await?.into_iter().next().unwrap_or(Value::Nil);
            from_redis_value(first).map_err(|_| EngineError::Damaged)
        }
        .boxed()
    }

    fn add(&self, commands: &mut Pipeline, name: &str, order: RecordOrder) {
        let key = self.key(&format!("s:{name}"));
        match order {
            RecordOrder::Read => {
                commands.cmd("HGETALL").arg(key);
            }
            RecordOrder::Open { owner, record, ttl } => {
                let script = call(commands, &SCRIPTS.open, &[&key]);
                script
                    .arg(owner.to_string())
                    .arg(&record[..])
                    .arg(lifetime(ttl));
            }
            RecordOrder::Save {
                owner,
                term,
                record,
                ttl,
            } => {
                let script = call(commands, &SCRIPTS.save, &[&key]);
                script.arg(owner.to_string()).arg(term.0);
                script.arg(&record[..]).arg(lifetime(ttl));
            }
            RecordOrder::Field {
                owner,
                term,
                name,
                value,
            } => {
                let script = call(commands, &SCRIPTS.field, &[&key]);
                script.arg(owner.to_string()).arg(term.0);
                script.arg(format!("f{name}")).arg(value.as_deref());
            }
            RecordOrder::Claim {
                owner,
                expected,
                term,
            } => {
                let script = call(commands, &SCRIPTS.claim, &[&key]);
                script
                    .arg(owner.to_string())
                    .arg(owner_text(expected))
                    .arg(term.0);
            }
            RecordOrder::Release { owner, term } => {
                let script = call(commands, &SCRIPTS.release, &[&key]);
                script.arg(owner.to_string()).arg(term.0);
            }
            RecordOrder::End { owner, term } => {
                let script = call(commands, &SCRIPTS.end, &[&key]);
                script.arg(owner.to_string()).arg(term.0);
            }
        }
    }

    async fn beat_once(
        &self,
        member: MemberRecord,
        ttl: Duration,
    ) -> Result<BeatAnswer, EngineError> {
        let mut commands = Pipeline::new();
        let key = self.member_key(member.number);
        let script = call(&mut commands, &SCRIPTS.beat, &[&key]);
        script
            .arg(member.incarnation.0)
            .arg(row(&member))
            .arg(lifetime(ttl));
        commands.cmd("HGETALL").arg(self.key("members"));
        let keys: Vec<_> = (1..=REPLICAS_MAX)
            .map(|number| self.member_key(ReplicaNumber(number)))
            .collect();
        commands.cmd("MGET").arg(keys);
        let counters = self.key("c");
        let mark = Uuid::new_v4().to_string();
        commands
            .cmd("HSETNX")
            .arg(&counters)
            .arg("mark")
            .arg(mark)
            .ignore();
        commands.cmd("HGET").arg(&counters).arg("mark");
        commands.cmd("INFO").arg("server");
        let answers = self.send(commands).await?;
        let [status, joined, living, mark, info] =
            <[Value; 5]>::try_from(answers).map_err(|_| EngineError::Damaged)?;
        let damaged = |_| EngineError::Damaged;
        let outcome = match from_redis_value::<i64>(status).map_err(damaged)? {
            1 => BeatOutcome::Kept,
            0 => BeatOutcome::Replaced,
            _ => BeatOutcome::Expired,
        };
        let living: Vec<Option<String>> = from_redis_value(living).map_err(damaged)?;
        let living = living.iter().flatten().filter_map(|row| member_of(row));
        let info: String = from_redis_value(info).map_err(damaged)?;
        Ok(BeatAnswer {
            outcome,
            living: living.collect(),
            joined: joined_of(joined)?,
            epoch: EngineEpoch {
                run: run_id(&info).to_owned(),
                mark: from_redis_value(mark).map_err(damaged)?,
            },
        })
    }
}

/// Adds the call of a script, whose arguments follow.
fn call<'p>(commands: &'p mut Pipeline, script: &Script, keys: &[&str]) -> &'p mut Pipeline {
    let commands = commands.cmd("EVALSHA").arg(script.get_hash());
    commands.arg(keys.len()).arg(keys)
}

fn one(name: &str, arguments: &[impl ToRedisArgs]) -> Pipeline {
    let mut commands = Pipeline::new();
    commands.cmd(name).arg(arguments);
    commands
}

impl Engine for RedisEngine {
    fn records(
        &self,
        orders: Vec<(String, RecordOrder)>,
    ) -> BoxFuture<'_, Result<Vec<RecordAnswer>, EngineError>> {
        let mut commands = Pipeline::with_capacity(orders.len());
        for (name, order) in orders {
            self.add(&mut commands, &name, order);
        }
        let sent = self.send(commands);
        async move { sent.await?.into_iter().map(answer_of).collect() }.boxed()
    }

    fn next_incarnation(&self) -> BoxFuture<'_, Result<Incarnation, EngineError>> {
        let mut commands = Pipeline::new();
        call(&mut commands, &SCRIPTS.incarnation, &[&self.key("c")]);
        let asked = self.ask::<u64>(commands);
        async move { asked.await.map(Incarnation) }.boxed()
    }

    fn joined(&self) -> BoxFuture<'_, Result<Vec<(ReplicaRef, String)>, EngineError>> {
        let asked = self.ask::<Value>(one("HGETALL", &[self.key("members")]));
        async move { joined_of(asked.await?) }.boxed()
    }

    fn take_number(
        &self,
        member: MemberRecord,
        ttl: Duration,
    ) -> BoxFuture<'_, Result<bool, EngineError>> {
        let mut commands = Pipeline::new();
        let keys = [self.member_key(member.number), self.key("members")];
        let script = call(&mut commands, &SCRIPTS.take, &[&keys[0], &keys[1]]);
        script.arg(member.incarnation.0).arg(&member.instance);
        script.arg(row(&member)).arg(lifetime(ttl));
        script.arg(member.number.0).arg(entry(&member));
        self.ask(commands)
    }

    fn beat(
        &self,
        member: MemberRecord,
        ttl: Duration,
    ) -> BoxFuture<'_, Result<BeatAnswer, EngineError>> {
        async move {
            let own = (member.replica(), member.address.clone());
            let (number, entry) = (member.number, entry(&member));
            let beat = self.beat_once(member, ttl).await;
            let outcome = beat.as_ref().map(|_| ()).map_err(Clone::clone);
            Arc::clone(&self.link).check(outcome).await;
            let mut beat = beat?;
            // The engine can lose the hash and keep the row.
            if beat.outcome == BeatOutcome::Kept && !beat.joined.contains(&own) {
                let arguments = [self.key("members"), number.to_string(), entry];
                self.send(one("HSET", &arguments)).await?;
                beat.joined.push(own);
            }
            Ok(beat)
        }
        .boxed()
    }

    fn member(
        &self,
        number: ReplicaNumber,
    ) -> BoxFuture<'_, Result<Option<MemberRecord>, EngineError>> {
        let asked = self.ask::<Option<String>>(one("GET", &[self.member_key(number)]));
        async move { Ok(asked.await?.and_then(|row| member_of(&row))) }.boxed()
    }

    fn leave(&self, member: ReplicaRef) -> BoxFuture<'_, Result<(), EngineError>> {
        let mut commands = Pipeline::new();
        let keys = [self.member_key(member.number), self.key("members")];
        let script = call(&mut commands, &SCRIPTS.leave, &[&keys[0], &keys[1]]);
        script.arg(member.incarnation.0).arg(member.number.0);
        let sent = self.send(commands);
        async move { sent.await.map(|_| ()) }.boxed()
    }

    fn own_address(&self) -> BoxFuture<'_, Result<Option<String>, EngineError>> {
        let asked = self.ask::<String>(one("CLIENT", &["INFO"]));
        async move { Ok(rows::client_ip(&asked.await?)) }.boxed()
    }

    fn failures(&self) -> u64 {
        self.link.failures()
    }
}
