/** A request as it came. */
export interface ArrivedRequest {
  readonly method: string;
  readonly path: string;
  /** The client's W3C trace context, as it sent it. */
  readonly traceparent: string | undefined;
  /** What the server hands along with requests: it knows when a response has left. */
  readonly environment: unknown;
}

/** How a request was answered. Its body may still be on its way. */
export interface AnsweredRequest {
  /** Pattern of the route, such as `/v1/functions/:name`: there are as many as the app has. */
  readonly route: string;
  readonly status: number;
  readonly tenant: string | undefined;
  /** Of the error that it was answered with. */
  readonly code: string | undefined;
}

export interface ObservedRequest {
  /** Trace context of the request's own span: what it causes is below it. */
  readonly traceparent: string;
  answered(answer: AnsweredRequest): void;
}

/** Measures and traces requests. What it is made of is the host's matter: this app runs where there is none. */
export interface RequestObserver {
  begin(request: ArrivedRequest): ObservedRequest;
}
