//! Clients with one channel: those of HTTP+SSE, which open their stream again when it breaks, and
//! those of `mcpvisor stdio --connect`, for which that does the same.

use mcpvisor::supervision::SeededRandom;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::chaos::callers::{Place, Scene, count};
use crate::chaos::faults::HEAL;
use crate::support::{Events, Gateway, Http, StdioClient, initialize, request};

pub(crate) struct ChannelCaller {
    number: u64,
    next: u64,
    random: SeededRandom,
    scene: Scene,
    channel: Channel,
}

enum Channel {
    Sse(SseChannel),
    Stdio(StdioClient),
}

/// The stream, if it is open, and what is needed to open it again in the same session.
#[derive(Default)]
struct SseChannel {
    open: Option<SseStream>,
    last_event_id: Option<String>,
}

struct SseStream {
    gateway: Place,
    path: String,
    events: Events,
}

impl ChannelCaller {
    pub(crate) fn over_sse(number: u64, scene: Scene) -> Self {
        Self::over(number, scene, Channel::Sse(SseChannel::default()))
    }

    pub(crate) async fn over_stdio(number: u64, scene: Scene, gateway: &Gateway) -> Self {
        let url = format!("http://{}/mcp", gateway.address);
        let client = StdioClient::open(&gateway.setup, &["--connect", &url]).await;
        Self::over(number, scene, Channel::Stdio(client))
    }

    fn over(number: u64, scene: Scene, channel: Channel) -> Self {
        Self {
            number,
            next: 0,
            random: scene.random(number),
            scene,
            channel,
        }
    }

    pub(crate) async fn run(mut self, over: CancellationToken) -> Self {
        while !over.is_cancelled() {
            let count = self.scene.servers.len() as u64;
            let server = usize::try_from(self.random.next() % count).unwrap();
            self.call_at(server).await;
        }
        self
    }

    /// To be asked when all is calm; the first answers may still be spoiled.
    pub(crate) async fn every_server_answers(&mut self) {
        for server in 0..self.scene.servers.len() {
            let begun = Instant::now();
            while !self.call_at(server).await {
                assert!(begun.elapsed() < HEAL, "server {server} does not answer");
            }
        }
    }

    /// Whether the server answered.
    async fn call_at(&mut self, server: usize) -> bool {
        self.next += 1;
        let (id, server) = (self.next, self.scene.servers[server].clone());
        let call = format!("{}-{id}", self.number);
        let params = json!({"name": format!("{server}__echo"), "arguments": {"call": call}});
        let body = request(id, "tools/call", params);
        let hang = self.scene.hang;
        let answer = timeout(hang, async {
            match &mut self.channel {
                Channel::Sse(channel) => channel.ask(&mut self.scene, self.number, &body).await,
                Channel::Stdio(client) => {
                    client.say(&body).await;
                    Some(client.answer(id).await)
                }
            }
        });
        let answer = answer.await;
        let answer = answer.unwrap_or_else(|_| panic!("client {} hangs", self.number));
        let Some(answer) = answer else {
            return false;
        };
        // The gateway that had it was killed: it says so itself when it is back, or the relay does.
        let failure = &answer["result"]["_meta"]["io.mcpvisor/error"];
        let of_gateway = match failure["server"].is_null() {
            true => &failure["code"],
            false => &Value::Null,
        };
        if let Some(code) = [of_gateway, &answer["error"]["data"]["code"]]
            .into_iter()
            .find(|code| code.is_string())
        {
            self.scene.tally.failed_with(code);
            return false;
        }
        let is_right = self.scene.tally.is_right(&server, &call, &answer["result"]);
        if is_right {
            count(&self.scene.tally.over_channels);
        }
        is_right
    }
}

impl SseChannel {
    /// The answer to a request; `None` when the gateway was killed before it came.
    async fn ask(&mut self, scene: &mut Scene, number: u64, body: &Value) -> Option<Value> {
        while self.open.is_none() {
            self.connect(scene, number).await;
        }
        let stream = self.open.as_mut()?;
        let answer = stream.answer(body, &mut self.last_event_id).await;
        if answer.is_none() {
            scene.was_cut(&stream.gateway, number);
            self.open = None;
        }
        answer
    }

    /// Goes on in the session that it had, or opens one.
    async fn connect(&mut self, scene: &mut Scene, number: u64) {
        let gateway = scene.gateway().await;
        let opened = SseStream::open(&gateway, self.last_event_id.as_deref()).await;
        let Some(mut stream) = opened else {
            return scene.was_cut(&gateway, number);
        };
        if self.last_event_id.is_none() {
            let hello = initialize("2024-11-05", &json!({}));
            let mut last_event_id = None;
            let Some(answer) = stream.answer(&hello, &mut last_event_id).await else {
                return scene.was_cut(&gateway, number);
            };
            assert!(answer["result"].is_object(), "{answer}");
            self.last_event_id = last_event_id;
        }
        self.open = Some(stream);
    }
}

impl SseStream {
    async fn open(gateway: &Place, last_event_id: Option<&str>) -> Option<Self> {
        let mut http =
            Http::new(gateway.address, "GET", "/sse").header("Accept", "text/event-stream");
        if let Some(id) = last_event_id {
            http = http.header("Last-Event-ID", id);
        }
        let answer = http.try_send().await?;
        assert_eq!(answer.status, 200, "{answer:?}");
        let mut events = answer.events();
        let path = events.next().await?.data;
        Some(Self {
            gateway: gateway.clone(),
            path,
            events,
        })
    }

    /// The answer to a request; answers to earlier ones are left out.
    async fn answer(&mut self, body: &Value, last_event_id: &mut Option<String>) -> Option<Value> {
        let http = Http::post(self.gateway.address, body.to_string()).path(&self.path);
        let accepted = http.try_send().await?;
        assert_eq!(accepted.status, 202, "a session is lost: {accepted:?}");
        loop {
            let message = self.events.message().await?;
            if self.events.last_id.is_some() {
                last_event_id.clone_from(&self.events.last_id);
            }
            if message["id"] == body["id"] && message.get("method").is_none() {
                return Some(message);
            }
        }
    }
}
