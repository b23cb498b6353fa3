//! All endpoints of the API; `openapi_tests.rs` describes them.

use super::request::BodyRule::{None, Optional, Required};
use super::route::Route;
use super::{
    config, events, gateway, history, keys, log_level, notices, oauth, pins, servers, sessions,
    tools,
};

const HISTORY_QUERY: &[&str] = &[
    "method", "server", "serverId", "session", "outcome", "text", "since", "until", "limit",
    "offset", "before", "after",
];

const LOGS_QUERY: &[&str] = &[
    "level", "server", "serverId", "text", "since", "after", "limit",
];

const PAGE_QUERY: &[&str] = &["limit", "offset"];

/// Parameter that selects a user's login.
const PRINCIPAL: &[&str] = &["principal"];

/// Parameter that selects the kind of an item.
const KIND: &[&str] = &["kind"];

pub(super) const ROUTES: &[Route] = &[
    Route::get("/api/tree", &[], |call| Box::pin(servers::tree(call))),
    Route::get("/api/servers", PAGE_QUERY, |call| {
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
    Route::post("/api/servers/{server}/upgrade", Optional, |call| {
        Box::pin(servers::upgrade(call))
    }),
    Route::post("/api/servers/{server}/kill", None, |call| {
        Box::pin(servers::kill(call))
    })
    .for_owner(),
    Route::get("/api/servers/{server}/logs", &["after", "limit"], |call| {
        Box::pin(servers::logs(call))
    }),
    Route::get("/api/servers/{server}/crashes", &[], |call| {
        Box::pin(servers::crashes(call))
    }),
    Route::get("/api/servers/{server}/explain", &[], |call| {
        Box::pin(servers::explain(call))
    }),
    Route::get("/api/crashes", &["server"], |call| {
        Box::pin(servers::all_crashes(call))
    })
    .for_owner(),
    Route::get("/api/servers/{server}/login", PRINCIPAL, |call| {
        Box::pin(oauth::signed_in(call))
    })
    .for_owner(),
    Route::post("/api/servers/{server}/logout", None, |call| {
        Box::pin(oauth::log_out(call))
    })
    .asks(PRINCIPAL)
    .for_owner(),
    Route::post("/api/logins/finish", Required, |call| {
        Box::pin(oauth::finish(call))
    })
    .for_owner(),
    Route::post("/api/servers/{server}/login", Optional, |call| {
        Box::pin(oauth::login(call))
    })
    .asks(PRINCIPAL),
    Route::get("/api/logins", &[], |call| Box::pin(oauth::list(call))),
    Route::get(
        "/oauth/authorize/{server}",
        &["redirect_uri", "principal"],
        |call| Box::pin(oauth::authorize(call)),
    ),
    Route::post("/oauth/refresh/{server}", None, |call| {
        Box::pin(oauth::refresh(call))
    })
    .asks(PRINCIPAL),
    Route::delete("/oauth/token/{server}", |call| {
        Box::pin(oauth::forget(call))
    })
    .asks(PRINCIPAL),
    Route::get(
        "/api/tools",
        &["server", "view", "limit", "offset"],
        |call| Box::pin(tools::list(call)),
    ),
    Route::get(
        "/api/pins",
        &["server", "state", "kind", "limit", "offset"],
        |call| Box::pin(pins::list(call)),
    ),
    Route::get("/api/pins/{server}/{name}", KIND, |call| {
        Box::pin(pins::one(call))
    }),
    Route::post("/api/servers/{server}/approve", None, |call| {
        Box::pin(pins::approve_all(call))
    }),
    Route::post("/api/pins/{server}/{name}/approve", Optional, |call| {
        Box::pin(pins::approve(call))
    })
    .asks(KIND),
    Route::get("/api/sessions", PAGE_QUERY, |call| {
        Box::pin(sessions::list(call))
    }),
    Route::get("/api/sessions/{handle}", &[], |call| {
        Box::pin(sessions::one(call))
    }),
    Route::delete("/api/sessions/{handle}", |call| {
        Box::pin(sessions::end(call))
    }),
    Route::get("/api/notices", &[], |call| Box::pin(notices::list(call))),
    Route::post("/api/notices/{notice}/dismiss", None, |call| {
        Box::pin(notices::dismiss(call))
    }),
    Route::post("/api/notices/{notice}/restore", None, |call| {
        Box::pin(notices::restore(call))
    }),
    Route::get("/api/keys", &[], |call| Box::pin(keys::list(call))),
    Route::get("/api/history", HISTORY_QUERY, |call| {
        Box::pin(history::calls(call))
    }),
    Route::get("/api/history/{call}", &[], |call| {
        Box::pin(history::one(call))
    }),
    Route::post("/api/history/{call}/replay", None, |call| {
        Box::pin(history::replay(call))
    }),
    Route::get("/api/logs", LOGS_QUERY, |call| {
        Box::pin(history::logs(call))
    }),
    Route::get("/api/events", &["types"], |call| {
        Box::pin(events::stream(call))
    }),
    Route::get("/api/loglevel", &[], |call| Box::pin(log_level::show(call))),
    Route::put("/api/loglevel", |call| Box::pin(log_level::change(call))),
    Route::post("/api/config/reload", None, |call| {
        Box::pin(gateway::reload(call))
    })
    .for_owner(),
    Route::get("/api/token", &[], |call| Box::pin(gateway::token(call))).for_owner(),
    Route::post("/api/token/rotate", None, |call| {
        Box::pin(gateway::rotate(call))
    })
    .for_owner(),
    Route::post("/api/dashboard/link", None, |call| {
        Box::pin(gateway::dashboard_link(call))
    })
    .for_owner(),
    Route::get("/config", &[], |call| Box::pin(config::list(call))),
    Route::post("/config", Required, |call| Box::pin(config::create(call))),
    Route::get("/config/{server}", &[], |call| Box::pin(config::one(call))),
    Route::put("/config/{server}", |call| Box::pin(config::update(call))),
    Route::delete("/config/{server}", |call| Box::pin(config::delete(call))),
];
