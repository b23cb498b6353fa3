//! Children in great number that nobody restarts.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mcpvisor::supervision::{ExitReason, Temporary, spawn_temporary, spawn_temporary_here};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout_at;

use crate::supervision::memory::bytes;
use crate::supervision::support::{
    Birth, Census, Fault, Order, Puppet, order, patience, run, run_alone, threads, until,
};

const CHILDREN: usize = 10_000;

/// How the children end, by their key modulo eight.
const ENDS: [&str; 8] = [
    "panicked",
    "failed",
    "normal",
    "killed",
    "panicked",
    "panicked",
    "normal",
    "arbiter_dead",
];

fn end_most(children: &mut [Option<Temporary<Puppet>>]) {
    for (key, child) in children.iter_mut().enumerate() {
        let Some(running) = child.as_ref() else {
            continue;
        };
        let breaks = |fault| {
            running
                .addr
                .do_send(Order::Break(fault, oneshot::channel().0))
        };
        match key % 8 {
            0 => breaks(Fault::Handler),
            1 => breaks(Fault::Fail),
            2 => breaks(Fault::Terminate),
            3 => running.exit.kill(),
            4 => breaks(Fault::Drop),
            5 => breaks(Fault::SpawnedFuture),
            6 => *child = None,
            // It ends with its thread.
            _ => {}
        }
    }
}

#[test]
fn ten_thousand_children_each_report_their_end_once() {
    let test = "supervision::temporary::ten_thousand_children_each_report_their_end_once";
    run_alone(test, async {
        let arbiters = threads(2);
        let census = Census::default();
        let (exits, mut exited) = mpsc::unbounded_channel();
        let before = bytes();
        let mut children = Vec::with_capacity(CHILDREN);
        for key in 0..CHILDREN {
            let exits = exits.clone();
            let census = census.clone();
            children.push(Some(spawn_temporary(
                &arbiters.site(key as u64).arbiter,
                move |_, exit| Puppet::alone(exit, Birth::Healthy, &census),
                move |reason: ExitReason| exits.send((key, reason.code())).unwrap(),
            )));
        }
        for child in children.iter().flatten() {
            assert_eq!(order(&child.addr, Order::Answer).await, Some(0));
        }
        let each = (bytes() - before) / CHILDREN as i64;
        assert_eq!(census.alive(), CHILDREN as i64);
        eprintln!("a temporary child takes {each} bytes");
        assert!(each < 1_500, "{each} bytes for each child");

        end_most(&mut children);
        let mut codes = vec![None; CHILDREN];
        let mut left = CHILDREN;
        while left > CHILDREN / 8 {
            let (key, code) = timeout_at(patience(), exited.recv())
                .await
                .expect("an exit is missing")
                .unwrap();
            assert_eq!(codes[key].replace(code), None, "{key} ended twice");
            left -= 1;
        }
        arbiters.stop(Duration::from_secs(30)).await.unwrap();
        drop(exits);
        while let Some((key, code)) = exited.recv().await {
            assert_eq!(codes[key].replace(code), None, "{key} ended twice");
        }
        for (key, code) in codes.iter().enumerate() {
            assert_eq!(*code, Some(ENDS[key % 8]), "{key}");
        }
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn a_child_that_is_never_born_reports_its_end_once() {
    run(async {
        let arbiters = threads(1);
        let site = arbiters.site(0);
        let reports = Arc::new(AtomicUsize::new(0));
        let (exits, mut exited) = mpsc::unbounded_channel();
        let spawn = |panics: bool| {
            let (exits, reports) = (exits.clone(), reports.clone());
            spawn_temporary(
                &site.arbiter,
                move |_, exit| {
                    assert!(!panics, "panic in factory");
                    Puppet::alone(exit, Birth::Healthy, &Census::default())
                },
                move |reason: ExitReason| {
                    reports.fetch_add(1, Ordering::SeqCst);
                    let _ = exits.send(reason.to_string());
                    panic!("panic in on_exit")
                },
            )
        };
        let unborn = spawn(true);
        assert_eq!(
            exited.recv().await.unwrap(),
            "its factory panicked: panic in factory"
        );
        assert!(order(&unborn.addr, Order::Answer).await.is_none());

        // Killed before its thread comes to it.
        let (held, hold) = std::sync::mpsc::channel::<()>();
        site.arbiter.spawn_fn(move || {
            hold.recv().unwrap_err();
        });
        let killed = spawn(false);
        killed.exit.kill();
        drop(held);
        assert_eq!(exited.recv().await.unwrap(), "was killed");

        arbiters.stop(Duration::from_secs(30)).await.unwrap();
        let late = spawn(false);
        assert_eq!(exited.recv().await.unwrap(), "its thread is gone");
        assert!(order(&late.addr, Order::Answer).await.is_none());
        assert_eq!(reports.load(Ordering::SeqCst), 3);
    });
}

#[test]
fn a_child_that_is_killed_at_birth_never_starts() {
    run(async {
        let arbiters = threads(1);
        let census = Census::default();
        let counted = census.clone();
        let (exits, mut exited) = mpsc::unbounded_channel();
        let _child = spawn_temporary(
            &arbiters.at(0).arbiter,
            move |_, exit| {
                exit.kill();
                Puppet::alone(exit, Birth::StartedPanics, &counted)
            },
            move |reason: ExitReason| exits.send(reason.code()).unwrap(),
        );
        assert_eq!(
            (exited.recv().await, exited.recv().await),
            (Some("killed"), None)
        );
        assert_eq!(census.alive(), 0);
        arbiters.stop(Duration::from_secs(30)).await.unwrap();
    });
}

#[test]
fn a_child_on_its_callers_thread_shares_values_and_reports_its_end() {
    run(async {
        let (census, code) = (Census::default(), Rc::new(OnceCell::new()));
        let reported = Rc::clone(&code);
        let child = spawn_temporary_here(
            |_, exit| Puppet::alone(exit, Birth::Healthy, &census),
            move |reason| reported.set(reason.code()).unwrap(),
        );
        assert_eq!(order(&child.addr, Order::Answer).await, Some(0));
        let breaks = |answer| Order::Break(Fault::Handler, answer);
        assert!(order(&child.addr, breaks).await.is_none());
        until(|| code.get() == Some(&"panicked")).await;
        assert_eq!(census.alive(), 0);
    });
}
