//! Every endpoint of the API. `openapi.json` has the schemas that they name.

use super::request::BodyRule::{None, Optional, Required};
use super::route::Route;
use super::{
    config, events, gateway, history, keys, log_level, oauth, pins, servers, sessions, tools,
};

const HISTORY_QUERY: &[&str] = &[
    "method", "server", "serverId", "session", "outcome", "text", "since", "until", "limit",
    "offset", "before", "after",
];

const LOGS_QUERY: &[&str] = &[
    "level", "server", "serverId", "text", "since", "after", "limit",
];

pub(super) const ROUTES: &[Route] = &[
    Route::get("/api/tree", &[], |call| Box::pin(servers::tree(call)))
        .says("Shows the whole gateway", "Tree"),
    Route::get("/api/servers", &["limit", "offset"], |call| {
        Box::pin(servers::list(call))
    })
    .says("Lists the servers", "Servers"),
    Route::get("/api/servers/{server}", &[], |call| {
        Box::pin(servers::one(call))
    })
    .says("Shows a server", "Server"),
    Route::post("/api/servers/{server}/start", None, |call| {
        Box::pin(servers::start(call))
    })
    .says("Takes a server into service again", "Ordered"),
    Route::post("/api/servers/{server}/stop", None, |call| {
        Box::pin(servers::stop(call))
    })
    .says("Takes a server out of service", "Ordered"),
    Route::post("/api/servers/{server}/restart", None, |call| {
        Box::pin(servers::restart(call))
    })
    .says("Connects a server anew", "Ordered"),
    Route::post("/api/servers/{server}/trip", Optional, |call| {
        Box::pin(servers::trip(call))
    })
    .says("Sends no calls to a server, or to a tool of it", "Ordered")
    .takes("ToolOfServer"),
    Route::post("/api/servers/{server}/reset", Optional, |call| {
        Box::pin(servers::reset(call))
    })
    .says("Sends calls again", "Ordered")
    .takes("ToolOfServer"),
    Route::post("/api/servers/{server}/kill", None, |call| {
        Box::pin(servers::kill(call))
    })
    .for_owner(),
    Route::get("/api/servers/{server}/logs", &["after", "limit"], |call| {
        Box::pin(servers::logs(call))
    })
    .says("Shows the last lines of a server", "ServerLogs"),
    Route::get("/api/servers/{server}/crashes", &[], |call| {
        Box::pin(servers::crashes(call))
    })
    .says("Shows the crash reports of a server", "Crashes"),
    Route::get("/api/crashes", &["server"], |call| {
        Box::pin(servers::all_crashes(call))
    })
    .for_owner(),
    Route::get("/api/servers/{server}/login", &["principal"], |call| {
        Box::pin(oauth::signed_in(call))
    })
    .for_owner(),
    Route::post("/api/servers/{server}/logout", None, |call| {
        Box::pin(oauth::log_out(call))
    })
    .asks(&["principal"])
    .for_owner(),
    Route::post("/api/logins/finish", Required, |call| {
        Box::pin(oauth::finish(call))
    })
    .for_owner(),
    Route::post("/api/servers/{server}/login", Optional, |call| {
        Box::pin(oauth::login(call))
    })
    .asks(&["principal"])
    .says("Begins a login at a server", "LoginPage")
    .takes("LoginRedirect"),
    Route::get("/api/logins", &[], |call| Box::pin(oauth::list(call)))
        .says("Lists the logins at servers", "Logins"),
    Route::get(
        "/oauth/authorize/{server}",
        &["redirect_uri", "principal"],
        |call| Box::pin(oauth::authorize(call)),
    )
    .says("Leads to the page to sign in at", "")
    .status("302"),
    Route::post("/oauth/refresh/{server}", None, |call| {
        Box::pin(oauth::refresh(call))
    })
    .asks(&["principal"])
    .says("Renews the token for a server", "RenewedToken"),
    Route::delete("/oauth/token/{server}", |call| {
        Box::pin(oauth::forget(call))
    })
    .asks(&["principal"])
    .says("Forgets the token for a server, and revokes it", ""),
    Route::get(
        "/api/tools",
        &["server", "view", "limit", "offset"],
        |call| Box::pin(tools::list(call)),
    )
    .says("Lists the tools that clients see", "Tools"),
    Route::get(
        "/api/pins",
        &["server", "state", "kind", "limit", "offset"],
        |call| Box::pin(pins::list(call)),
    )
    .says("Lists the pins of servers", "Pins"),
    Route::get("/api/pins/{server}/{name}", &["kind"], |call| {
        Box::pin(pins::one(call))
    })
    .says("Shows a pin with its definitions", "PinWithDefinitions"),
    Route::post("/api/servers/{server}/approve", None, |call| {
        Box::pin(pins::approve_all(call))
    })
    .says(
        "Approves everything that a server lists, as it is",
        "Approved",
    ),
    Route::post("/api/pins/{server}/{name}/approve", Optional, |call| {
        Box::pin(pins::approve(call))
    })
    .asks(&["kind"])
    .says("Approves an item as it is", "Approved")
    .takes("ApprovedDefinition"),
    Route::get("/api/sessions", &["limit", "offset"], |call| {
        Box::pin(sessions::list(call))
    })
    .says("Lists the sessions of clients", "Sessions"),
    Route::get("/api/sessions/{handle}", &[], |call| {
        Box::pin(sessions::one(call))
    })
    .says("Shows a session", "Session"),
    Route::delete("/api/sessions/{handle}", |call| {
        Box::pin(sessions::end(call))
    })
    .says("Ends a session", ""),
    Route::get("/api/keys", &[], |call| Box::pin(keys::list(call)))
        .says("Lists the API keys", "Keys"),
    Route::get("/api/history", HISTORY_QUERY, |call| {
        Box::pin(history::calls(call))
    })
    .says("Lists calls, the newest first", "History"),
    Route::get("/api/history/{call}", &[], |call| {
        Box::pin(history::one(call))
    })
    .says("Shows a call", "Call"),
    Route::post("/api/history/{call}/replay", None, |call| {
        Box::pin(history::replay(call))
    })
    .says("Makes a call again", "JsonRpcAnswer"),
    Route::get("/api/logs", LOGS_QUERY, |call| {
        Box::pin(history::logs(call))
    })
    .says("Lists records of the log, the newest first", "Logs"),
    Route::get("/api/events", &["types"], |call| {
        Box::pin(events::stream(call))
    })
    .says("Tells what happens, as server-sent events", "Events"),
    Route::get("/api/loglevel", &[], |call| Box::pin(log_level::show(call)))
        .says("Shows the log level", "LogLevel"),
    Route::put("/api/loglevel", |call| Box::pin(log_level::change(call)))
        .says("Changes the log level until the next start", "LogLevel")
        .takes("LogLevel"),
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
    Route::get("/config", &[], |call| Box::pin(config::list(call)))
        .says("Lists the servers of the configuration", "ConfigServers"),
    Route::post("/config", Required, |call| Box::pin(config::create(call)))
        .says("Adds a server", "ConfigServer")
        .takes("NewConfigServer")
        .status("201"),
    Route::get("/config/{server}", &[], |call| Box::pin(config::one(call)))
        .says("Shows a server of the configuration", "ConfigServer"),
    Route::put("/config/{server}", |call| Box::pin(config::update(call)))
        .says("Changes a server", "ConfigServer")
        .takes("ConfigServerChange"),
    Route::delete("/config/{server}", |call| Box::pin(config::delete(call)))
        .says("Removes a server", ""),
];
