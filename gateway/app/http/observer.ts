export interface ArrivedRequest {
  readonly method: string;
  readonly path: string;
  /** The client's W3C trace context, unchecked. */
  readonly traceparent: string | undefined;
  /** The server's objects for this request, from which the observer learns when the response has been sent. */
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
  /** Trace context of the request's own span, under which all work for the request is traced. */
  readonly traceparent: string;
  answered(answer: AnsweredRequest): void;
}

/** Measures and traces requests. `gateway/node` implements it; a worker has none. */
export interface RequestObserver {
  begin(request: ArrivedRequest): ObservedRequest;
}
