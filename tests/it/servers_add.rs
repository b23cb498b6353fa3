//! `mcpvisor servers add`.

use std::fs;
use std::net::TcpListener;

use actix_web::{HttpRequest, HttpResponse, web};

use serde_json::json;

use crate::support::{Setup, quick, serve_in_thread};

/// A `server.json` of the registry whose program is the built-in example.
fn server_json(setup: &Setup) -> String {
    let file = json!({
        "name": "io.github.somebody/far server", "version": "1",
        "packages": [{
            "registryType": "npm", "identifier": "example-server", "runtimeHint": Setup::BINARY,
            "transport": {"type": "stdio"},
            "environmentVariables": [
                {"name": "API_KEY", "isRequired": true, "isSecret": true, "description": "Of the API"},
                {"name": "IT_MARK", "default": setup.mark().split_once('=').unwrap().1},
                {"name": "IT_SERVER", "default": "far-server"},
            ],
        }],
    });
    file.to_string()
}

#[tokio::test]
async fn a_server_of_the_registry_is_added_to_a_running_gateway() {
    let config = format!("# Mine.\n{}", quick());
    let setup = Setup::new(&config).variable("FAR_KEY", "SECRET");
    fs::write(setup.path("server.json"), server_json(&setup)).unwrap();
    let gateway = setup.serve().await;
    let setup = &gateway.setup;
    let (succeeded, printed) = setup.run(&["servers", "add", "server.json"]);
    assert!(
        !succeeded && printed.contains("--set API_KEY=…  Of the API"),
        "{printed}"
    );
    let set = [
        "servers",
        "add",
        "server.json",
        "--set",
        "API_KEY=${FAR_KEY}",
    ];
    let (succeeded, printed) = setup.run(&[&set[..], &["--dry-run"]].concat());
    assert!(succeeded && printed.contains("would write"), "{printed}");
    assert_eq!(
        fs::read_to_string(setup.path("config.toml")).unwrap(),
        config
    );

    let (succeeded, printed) = setup.run(&set);
    assert!(
        succeeded && printed.contains("added    far-server"),
        "{printed}"
    );
    gateway.wait_state("far-server", "up").await;
    let now = fs::read_to_string(setup.path("config.toml")).unwrap();
    assert!(
        now.starts_with("# Mine.") && now.contains("API_KEY = \"${FAR_KEY}\""),
        "{now}"
    );
    let (succeeded, printed) = setup.run(&set);
    assert!(
        !succeeded && printed.contains("already has a server with this name"),
        "{printed}"
    );
}

#[tokio::test]
async fn a_name_is_looked_up_in_the_registry() {
    let setup = Setup::new("");
    let answer = format!(
        "{{\"server\": {}, \"_meta\": {{\"io.modelcontextprotocol.registry/official\": \
         {{\"status\": \"active\"}}}}}}",
        server_json(&setup)
    );
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let registry = format!("http://{}/sub", listener.local_addr().unwrap());
    serve_in_thread(listener, web::Data::new(answer), registry_answer).await;
    let setup = setup.variable("MCPVISOR_REGISTRY", &registry);
    let add = |name| {
        let set = ["--set", "API_KEY=x"];
        setup.run(&[&["servers", "add", name][..], &set].concat())
    };
    let (succeeded, printed) = add("io.github.somebody/other");
    assert!(
        !succeeded && printed.contains("no such server"),
        "{printed}"
    );
    let (succeeded, printed) = add("io.github.somebody/far@2.0");
    assert!(
        !succeeded && printed.contains("no such server"),
        "{printed}"
    );
    let (succeeded, printed) = add("io.github.somebody/far");
    assert!(
        succeeded && printed.contains("added    far-server"),
        "{printed}"
    );
    let now = fs::read_to_string(setup.path("config.toml")).unwrap();
    assert!(now.contains("[servers.far-server]"), "{now}");
}

/// As a registry that has one version of one server.
async fn registry_answer(request: HttpRequest, answer: web::Data<String>) -> HttpResponse {
    let known = "/sub/v0.1/servers/io.github.somebody%2Ffar/versions/latest";
    match request.uri().path() == known {
        true => HttpResponse::Ok().body(answer.get_ref().clone()),
        false => HttpResponse::NotFound().finish(),
    }
}

#[test]
fn a_url_is_added_with_its_headers_and_what_is_no_server_is_refused() {
    let setup = Setup::new("");
    let url = "https://mcp.docs.example.com/mcp";
    let add = [
        "servers",
        "add",
        url,
        "--set",
        "Authorization=Bearer ${TOKEN}",
    ];
    let (succeeded, printed) = setup.run(&add);
    assert!(succeeded && printed.contains("added    docs"), "{printed}");
    let now = fs::read_to_string(setup.path("config.toml")).unwrap();
    assert!(
        now.contains(&format!("url = \"{url}\"")) && now.contains("Bearer ${TOKEN}"),
        "{now}"
    );
    let (succeeded, printed) = setup.run(&["servers", "add", url, "--name", "other"]);
    assert!(succeeded && printed.contains("added    other"), "{printed}");

    fs::write(setup.path("bad.json"), "{\"name\": SECRET").unwrap();
    fs::write(setup.path("empty.json"), "{\"name\": \"x\"}").unwrap();
    for (from, expected) in [
        ("nowhere.json", "nowhere.json"),
        ("bad.json", "is not JSON"),
        ("empty.json", "no matching npm"),
        ("http://127.0.0.1:1/server.json", "127.0.0.1:1"),
    ] {
        let (succeeded, printed) = setup.run(&["servers", "add", from]);
        assert!(
            !succeeded && printed.contains(expected) && !printed.contains("SECRET"),
            "{printed}"
        );
    }
}
