//! Every endpoint of the API.

use super::request::BodyRule::{None, Optional, Required};
use super::route::Route;
use super::{config, history, log_level, servers, sessions, tools};

const HISTORY_QUERY: &[&str] = &[
    "method", "server", "serverId", "session", "outcome", "text", "since", "until", "limit",
    "offset", "before", "after",
];

const LOGS_QUERY: &[&str] = &[
    "level", "server", "serverId", "text", "since", "after", "limit",
];

pub(super) const ROUTES: &[Route] = &[
    Route::get("/api/tree", &[], |call| Box::pin(servers::tree(call))),
    Route::get("/api/servers", &["limit", "offset"], |call| {
        Box::pin(servers::list(call))
    }),
    Route::get("/api/servers/{server}", &[], |call| {
        Box::pin(servers::one(call))
    }),
    Route::post("/api/servers/{server}/start", None, |call| {
        Box::pin(servers::start(call))
    }),
    Route::post("/api/servers/{server}/stop", None, |call| {
        Box::pin(servers::stop(call))
    }),
    Route::post("/api/servers/{server}/restart", None, |call| {
        Box::pin(servers::restart(call))
    }),
    Route::post("/api/servers/{server}/trip", Optional, |call| {
        Box::pin(servers::trip(call))
    }),
    Route::post("/api/servers/{server}/reset", Optional, |call| {
        Box::pin(servers::reset(call))
    }),
    Route::get("/api/servers/{server}/logs", &["after", "limit"], |call| {
        Box::pin(servers::logs(call))
    }),
    Route::get("/api/servers/{server}/crashes", &[], |call| {
        Box::pin(servers::crashes(call))
    }),
    Route::get("/api/tools", &["server", "limit", "offset"], |call| {
        Box::pin(tools::list(call))
    }),
    Route::get("/api/sessions", &["limit", "offset"], |call| {
        Box::pin(sessions::list(call))
    }),
    Route::get("/api/sessions/{handle}", &[], |call| {
        Box::pin(sessions::one(call))
    }),
    Route::delete("/api/sessions/{handle}", |call| {
        Box::pin(sessions::end(call))
    }),
    Route::get("/api/history", HISTORY_QUERY, |call| {
        Box::pin(history::calls(call))
    }),
    Route::get("/api/history/{id}", &[], |call| {
        Box::pin(history::one(call))
    }),
    Route::post("/api/history/{id}/replay", None, |call| {
        Box::pin(history::replay(call))
    }),
    Route::get("/api/logs", LOGS_QUERY, |call| {
        Box::pin(history::logs(call))
    }),
    Route::get("/api/loglevel", &[], |call| Box::pin(log_level::show(call))),
    Route::put("/api/loglevel", |call| Box::pin(log_level::change(call))),
    Route::get("/config", &[], |call| Box::pin(config::list(call))),
    Route::post("/config", Required, |call| Box::pin(config::create(call))),
    Route::get("/config/{server}", &[], |call| Box::pin(config::one(call))),
    Route::put("/config/{server}", |call| Box::pin(config::update(call))),
    Route::delete("/config/{server}", |call| Box::pin(config::delete(call))),
];
