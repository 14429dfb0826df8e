export interface ArrivedRequest {
  readonly method: string;
  readonly path: string;
  /** The client's W3C trace context, unchecked. */
  readonly traceparent: string | undefined;
  /** The server's per-request objects; they tell when a response has left. */
  readonly environment: unknown;
}

/** The answer to a request. Its body may still be on its way. */
export interface AnsweredRequest {
  /** Pattern of the route, such as `/v1/functions/:name`; the number of patterns is bounded. */
  readonly route: string;
  readonly status: number;
  readonly tenant: string | undefined;
  /** Code of the answer's error. */
  readonly code: string | undefined;
}

export interface ObservedRequest {
  /** Trace context of the request's own span; the work that it causes belongs below that span. */
  readonly traceparent: string;
  answered(answer: AnsweredRequest): void;
}

/** Measures and traces requests. `gateway/node` implements it; a worker has none. */
export interface RequestObserver {
  begin(request: ArrivedRequest): ObservedRequest;
}
