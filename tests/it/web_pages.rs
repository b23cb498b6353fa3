//! The rights of web pages of other origins, and where registries look.

use serde_json::json;

use crate::support::{Gateway, Http, INITIALIZE};

#[tokio::test]
async fn a_web_page_may_call_if_its_origin_may() {
    let gateway = Gateway::start("").await;
    let origin = "http://localhost:3000";
    for path in ["/mcp", "/", "/health", "/.well-known/mcp-config"] {
        let preflight = Http::new(gateway.address, "OPTIONS", path)
            .header("Origin", origin)
            .header("Access-Control-Request-Method", "POST")
            .header(
                "Access-Control-Request-Headers",
                "content-type,mcp-session-id,mcp-protocol-version,last-event-id,authorization,\
                 mcp-param-region,x-session-token",
            )
            .send()
            .await;
        assert_eq!(preflight.status, 204, "{path}: {preflight:?}");
        assert_eq!(
            preflight.header("access-control-allow-credentials"),
            Some("true")
        );
        assert_eq!(
            preflight.header("access-control-allow-origin"),
            Some(origin)
        );
        let max_age = preflight.header("access-control-max-age");
        assert_eq!(max_age, Some("86400"), "{path}");
        let methods = preflight.header("access-control-allow-methods").unwrap();
        for method in ["GET", "POST", "PUT", "DELETE", "OPTIONS"] {
            assert!(methods.contains(method), "{path}: {methods}");
        }
        let headers = preflight.header("access-control-allow-headers").unwrap();
        for header in [
            "content-type",
            "mcp-session-id",
            "last-event-id",
            "authorization",
            "mcp-param-region",
            "x-session-token",
        ] {
            assert!(headers.to_lowercase().contains(header), "{path}: {headers}");
        }
    }
}

#[tokio::test]
async fn answers_and_errors_show_a_web_page_its_headers() {
    let gateway = Gateway::start("").await;
    let origin = "http://127.0.0.1:5173";
    let of = |http: Http| http.header("Origin", origin);
    let answers = [
        (of(Http::post(gateway.address, INITIALIZE)), 200),
        (of(Http::post(gateway.address, INITIALIZE).path("/")), 200),
        (of(Http::post(gateway.address, "nonsense")), 400),
        (
            of(Http::post(gateway.address, "{}").header("Content-Type", "text/plain")),
            415,
        ),
        (of(gateway.get("/health")), 200),
        (of(gateway.get("/nothing")), 404),
        (of(Http::new(gateway.address, "PUT", "/mcp")), 405),
    ];
    for (http, status) in answers {
        let answer = http.send().await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!(
            answer.header("access-control-allow-origin"),
            Some(origin),
            "{answer:?}"
        );
        let exposed = answer.header("access-control-expose-headers").unwrap();
        assert!(
            exposed.to_lowercase().contains("mcp-session-id"),
            "{exposed}"
        );
    }
}

#[tokio::test]
async fn every_origin_may_call_where_the_operator_says_so() {
    let gateway = Gateway::start("[gateway]\nallowed_origins = [\"*\"]\n").await;
    for origin in ["https://any.example", "http://10.0.0.1:8080", "null"] {
        let http = Http::post(gateway.address, INITIALIZE).header("Origin", origin);
        let answer = http.send().await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.header("access-control-allow-origin"), Some(origin));
    }
}

#[tokio::test]
async fn registries_find_out_how_to_connect() {
    let gateway = Gateway::start("[gateway]\nendpoint = \"/tools/mcp\"\n").await;
    for path in [
        "/.well-known/mcp-config",
        "/tools/mcp/.well-known/mcp-config",
    ] {
        let answer = gateway.get(path).header("Origin", "http://localhost:3000");
        let answer = answer.send().await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let origin = answer.header("access-control-allow-origin");
        assert_eq!(origin, Some("http://localhost:3000"));
        let body = answer.json().await;
        assert_eq!(body["startCommand"]["endpoint"], "/tools/mcp", "{body}");
        assert_eq!(body["transport"], "streamable-http");
        assert_eq!(body["configSchema"]["required"], json!([]));
    }
}
