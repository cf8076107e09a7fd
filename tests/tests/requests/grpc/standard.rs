//! Health and reflection, as every gRPC server has them.

use ratelimit_tests::{grpc::Client, service::Service};
use ratelimit_user::serve::grpc::messages::{
    health::{HealthCheckRequest, HealthCheckResponse, ServingStatus},
    reflection::{MessageRequest, MessageResponse, ServerReflectionRequest, ServerReflectionResponse},
};

const POLICY: &str = "[[api]]\nname = \"web\"\nkey = [\"user\"]\nlimits = [\"10/hour\"]\n";

#[test]
fn services_are_healthy_and_others_unknown() {
    let service = Service::start(POLICY);
    let mut client = Client::connect(service.grpc);
    let of = |service: &str| HealthCheckRequest { service: service.to_owned() };
    for name in ["", "envoy.service.ratelimit.v3.RateLimitService", "grpc.health.v1.Health"] {
        let answer: HealthCheckResponse =
            client.call("/grpc.health.v1.Health/Check", &of(name)).expect("known");
        assert_eq!(answer.status(), ServingStatus::Serving, "{name:?}");
    }
    let ending =
        client.call::<HealthCheckResponse>("/grpc.health.v1.Health/Check", &of("x.Y")).expect_err("unknown");
    assert_eq!((ending.code, &ending.message[..]), (5, "there is no service \"x.Y\""));
    // A stream of `Watch` stays open.
    let mut watched = client.watch("/grpc.health.v1.Health/Watch", &of(""));
    let answer: HealthCheckResponse = client.receive(&mut watched).expect("an answer");
    assert_eq!(answer.status(), ServingStatus::Serving);
}

#[test]
fn reflection_lists_services_and_shows_their_files() {
    let service = Service::start(POLICY);
    let mut client = Client::connect(service.grpc);
    for version in ["v1", "v1alpha"] {
        let mut stream =
            client.open(&format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"));
        let mut ask = |question| {
            let question = ServerReflectionRequest { host: String::new(), message_request: Some(question) };
            client.send(&mut stream, &question);
            let answer: ServerReflectionResponse = client.receive(&mut stream).expect("an answer");
            answer.message_response.expect("something")
        };
        let MessageResponse::ListServicesResponse(list) = ask(MessageRequest::ListServices("*".to_owned()))
        else {
            panic!("no list")
        };
        let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "envoy.service.rate_limit_quota.v3.RateLimitQuotaService",
                "envoy.service.ratelimit.v3.RateLimitService",
                "grpc.health.v1.Health",
                "grpc.reflection.v1.ServerReflection",
                "grpc.reflection.v1alpha.ServerReflection",
            ]
        );
        for name in names {
            let answer = ask(MessageRequest::FileContainingSymbol(name.to_owned()));
            assert!(matches!(answer, MessageResponse::FileDescriptorResponse(_)), "{name}: {answer:?}");
        }
        client.end(stream);
    }
}
