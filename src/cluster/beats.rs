//! Joins the cluster and beats, for as long as the process lives.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::engine::{EngineEpoch, EngineError, MemberRecord};
use super::ids::{REPLICAS_MAX, ReplicaNumber, ReplicaRef};
use super::membership::{AfterBeat, after_beat};
use super::replica::Replica;
use crate::id::random_bytes;

/// How often this replica notes that it is awake. A peer waits 1 s for its answer, so a sleep in
/// which it can be declared gone is always longer than this.
const TICK: Duration = Duration::from_millis(250);

const HEALTH_TIMEOUT: Duration = Duration::from_secs(1);

const JOIN_RETRY: Duration = Duration::from_millis(500);

/// Runs the beats until this replica leaves, again after a panic.
pub(super) async fn supervise(replica: Arc<Replica>) {
    // Aborted with this task.
    let _ticks = AbortOnDropHandle::new(tokio::spawn(tick(Arc::clone(&replica))));
    while let Err(error) = tokio::spawn(run(Arc::clone(&replica))).await {
        log::error!(error:% = error; "the cluster's beats panicked; they start again");
        sleep(JOIN_RETRY).await;
    }
}

/// Notes that this replica is awake, also while a beat waits for the engine.
async fn tick(replica: Arc<Replica>) {
    loop {
        replica.pulse.tick(Instant::now());
        sleep(TICK).await;
    }
}

/// Joins, then beats until this replica leaves.
async fn run(replica: Arc<Replica>) {
    let mut epoch = None;
    if !*replica.joined.borrow() {
        join(&replica, replica.spec.former_number).await;
    }
    replica.wake.notify_one();
    let period = replica.spec.member_ttl / 3;
    let mut last = Instant::now();
    loop {
        let woken = tokio::select! {
            () = sleep(TICK.min(period)) => false,
            () = replica.wake.notified() => true,
        };
        if replica.has_left.load(Ordering::Relaxed) {
            return;
        }
        let now = Instant::now();
        if !woken && now - last < period {
            continue;
        }
        last = now;
        if !is_healthy(&replica).await {
            log::warn!("this replica does not beat: a worker or its hop listener does not answer");
            continue;
        }
        let beat = beat(&replica, &mut epoch, now).await;
        note(&replica, beat.err());
    }
}

async fn is_healthy(replica: &Replica) -> bool {
    let health = replica.health.lock().clone();
    match health {
        None => true,
        Some(health) => timeout(HEALTH_TIMEOUT, health()).await.unwrap_or(false),
    }
}

/// Joins as soon as the engine answers.
async fn join(replica: &Replica, preferred: Option<ReplicaNumber>) {
    loop {
        let at = Instant::now();
        match try_join(replica, preferred).await {
            Ok(me) => {
                become_member(replica, me, at);
                note(replica, None);
                log::info!(replica:% = me.number, name = replica.spec.name; "joined the cluster");
                replica.joined.send_replace(true);
                return;
            }
            Err(error) => note(replica, Some(error)),
        }
        tokio::select! {
            () = sleep(JOIN_RETRY) => {}
            () = replica.wake.notified() => {}
        }
        if replica.has_left.load(Ordering::Relaxed) {
            return;
        }
    }
}

fn become_member(replica: &Replica, me: ReplicaRef, at: Instant) {
    *replica.own.write() = me;
    replica.pulse.beat(at);
    replica.pulse.tick(at);
}

async fn try_join(
    replica: &Replica,
    preferred: Option<ReplicaNumber>,
) -> Result<ReplicaRef, EngineError> {
    let address = address(replica).await?;
    let incarnation = replica.engine.next_incarnation().await?;
    let members = replica.engine.members().await?;
    let numbers = (1..=REPLICAS_MAX).map(ReplicaNumber);
    for number in preferred.into_iter().chain(numbers) {
        let holder = members.joined.iter().find(|it| it.number == number);
        // A replica without beats can be alive, cut off from the engine alone.
        if let Some(holder) = holder
            && Some(number) != preferred
            && members.living(number).is_none()
            && replica.ping(&holder.address).await == Some(holder.replica())
        {
            continue;
        }
        let me = ReplicaRef {
            number,
            incarnation,
        };
        let member = own_record(replica, me, &address);
        if replica
            .engine
            .take_number(member, replica.spec.member_ttl)
            .await?
        {
            return Ok(me);
        }
    }
    let why = format!("the cluster has {REPLICAS_MAX} replicas, the most that it can have");
    Err(EngineError::Refused(why))
}

/// Where others find this replica.
async fn address(replica: &Replica) -> Result<String, EngineError> {
    let spec = &replica.spec;
    if let Some(advertised) = &spec.advertise {
        return Ok(advertised.clone());
    }
    if !spec.listen.ip().is_unspecified() {
        return Ok(spec.listen.to_string());
    }
    let seen = replica.engine.own_address().await?;
    let seen = seen.and_then(|seen| seen.parse::<std::net::IpAddr>().ok());
    let ip = seen.unwrap_or(std::net::Ipv4Addr::LOCALHOST.into());
    Ok(std::net::SocketAddr::new(ip, spec.listen.port()).to_string())
}

pub(super) fn own_record(replica: &Replica, me: ReplicaRef, address: &str) -> MemberRecord {
    MemberRecord {
        number: me.number,
        incarnation: me.incarnation,
        instance: replica.instance.lock().clone(),
        address: address.to_owned(),
        name: replica.spec.name.clone(),
        version: replica.spec.version.clone(),
        leaving: replica.is_leaving.load(Ordering::Relaxed),
        sessions: replica.sessions.load(Ordering::Relaxed),
    }
}

async fn beat(
    replica: &Replica,
    epoch: &mut Option<EngineEpoch>,
    now: Instant,
) -> Result<(), EngineError> {
    let me = *replica.own.read();
    let address = address(replica).await?;
    let member = own_record(replica, me, &address);
    let ttl = replica.spec.member_ttl;
    let (outcome, members) = replica.engine.beat(member, ttl).await?;
    // It left while the beat was on its way, and must not join again.
    if replica.has_left.load(Ordering::Relaxed) {
        return Ok(());
    }
    let since_last = replica.pulse.since_beat(now);
    // Before the beat counts, so that those who wait for it see the members that it found.
    replica.learn(&members, now);
    let lost_writes = epoch.as_ref().is_some_and(|known| *known != members.epoch);
    match after_beat(outcome, lost_writes, since_last, ttl) {
        AfterBeat::Continue => replica.pulse.beat(now),
        AfterBeat::Retake => retake(replica, me, &address, now).await?,
        AfterBeat::TakeIncarnation => {
            log::warn!("this replica did not beat for {ttl:?}: it verifies its sessions");
            let incarnation = replica.engine.next_incarnation().await?;
            let next = ReplicaRef { incarnation, ..me };
            retake(replica, next, &address, now).await?;
        }
        AfterBeat::JoinAgain => join_again(replica).await?,
    }
    // An outage is longer than a beat that came late.
    let was_away = since_last > ttl * 2 / 3;
    *epoch = Some(members.epoch);
    if lost_writes || was_away {
        log::info!("the engine came back: this replica saves its sessions again");
        replica.came_back.send_modify(|times| *times += 1);
    }
    Ok(())
}

/// Writes this replica's row under its number, or joins with another number.
async fn retake(
    replica: &Replica,
    next: ReplicaRef,
    address: &str,
    now: Instant,
) -> Result<(), EngineError> {
    let member = own_record(replica, next, address);
    if replica
        .engine
        .take_number(member, replica.spec.member_ttl)
        .await?
    {
        become_member(replica, next, now);
        replica.wake.notify_one();
        return Ok(());
    }
    join_again(replica).await
}

/// Joins with a free number. Its data directory proves nothing any more: another process has it.
async fn join_again(replica: &Replica) -> Result<(), EngineError> {
    let random: [u8; 16] = random_bytes().map_err(|why| EngineError::Refused(why.to_string()))?;
    *replica.instance.lock() = format!("{:032x}", u128::from_be_bytes(random));
    let at = Instant::now();
    let me = try_join(replica, None).await?;
    log::warn!(replica:% = me.number; "another replica took this one's number; joined again");
    become_member(replica, me, at);
    Ok(())
}

/// Logs when the engine goes away and comes back.
fn note(replica: &Replica, error: Option<EngineError>) {
    let mut away = replica.away.lock();
    match (error, &mut *away) {
        (Some(error), None) => {
            let waits = if *replica.joined.borrow() {
                "the cluster's engine is away"
            } else {
                "waiting for the cluster's engine: this replica is not ready until it has joined"
            };
            log::warn!(error:% = error; "{waits}");
            *away = Some((Instant::now(), error.to_string()));
        }
        (Some(error), Some((_, why))) => *why = error.to_string(),
        (None, Some((since, _))) => {
            log::info!(after:? = since.elapsed(); "the cluster's engine answers");
            *away = None;
        }
        (None, None) => {}
    }
}
