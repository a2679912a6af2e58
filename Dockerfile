# The proxy as a container image, without root:    docker build -t dlx-proxy .
FROM rust:1-bookworm AS build
# A profile of Cargo.toml. Tests take one that compiles faster.
ARG PROFILE=dist
WORKDIR /build
# The dependencies first, in a layer of their own: it stays until Cargo.toml or Cargo.lock changes. Cargo wants to see a file for
# each target, so the program is a placeholder here, and tests, examples and benchmarks are taken out of the manifest.
COPY Cargo.toml Cargo.lock ./
COPY crates/amqp/Cargo.toml crates/amqp/
COPY crates/core/Cargo.toml crates/core/
RUN awk '/^\[/ { keep = !/^\[\[(bench|example|test)\]\]/ } keep' Cargo.toml >trimmed && mv trimmed Cargo.toml \
    && mkdir src crates/amqp/src crates/core/src && echo 'fn main() {}' >src/main.rs \
    && touch src/lib.rs crates/amqp/src/lib.rs crates/core/src/lib.rs \
    && cargo build --profile "$PROFILE" --locked
COPY crates crates
COPY src src
# COPY keeps the age of files, and cargo goes by age.
RUN touch src/main.rs src/lib.rs crates/*/src/lib.rs && cargo build --profile "$PROFILE" --locked && mv "target/$PROFILE/dlx-proxy" .

FROM debian:bookworm-slim
COPY --from=build /build/dlx-proxy /usr/local/bin/dlx-proxy
# By number, so that Kubernetes can see that it is not root. Nothing is written to disk.
USER 10001:10001
ENV DLX_PROXY_LISTEN=0.0.0.0:5673 DLX_PROXY_ADMIN=0.0.0.0:15673
EXPOSE 5673 15673
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=3 CMD ["dlx-proxy", "healthcheck"]
ENTRYPOINT ["dlx-proxy"]
CMD ["run"]
