//! What ends servers from the outside: limits of their processes.

use serde_json::json;

use crate::support::{Client, Gateway, failure_of, python, quick, text_of};

#[tokio::test]
async fn a_server_at_its_memory_limit_ends_with_that_reason_and_comes_back() {
    let limits = "[servers.py.limits]\nmemory_max = \"128MiB\"\n";
    let gateway = Gateway::start(&(quick() + &python("py", "") + limits)).await;
    let client = Client::open(&gateway).await;
    let huge = json!({"bytes": 512_u64 << 20});
    let result = client.call("py__long", huge).await;
    assert_eq!(failure_of(&result)["server"], "py");
    let told = text_of(&result);
    assert!(told.contains("`memory_max = 128MiB`"), "{told}");
    let server = gateway.wait_state("py", "up").await;
    let shared = &server["connection"]["shared"];
    assert_eq!(shared["last_exit_code"], "limit_reached", "{server}");
    let result = client.call("py__echo", json!({})).await;
    assert_eq!(text_of(&result), "py {}");
}
