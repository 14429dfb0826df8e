/** Data of events that runtimes write and others read, as JSON: an event of an earlier release may lack members. */

/** Data of `start`. */
export interface StartData {
  readonly invocation: string;
  readonly function: string;
  readonly version: string;
  readonly queuedMs: number;
  readonly coldStart: boolean;
  /** Set from the second attempt on. It takes back earlier attempts' messages, but not those before a `question`. */
  readonly attempt?: number;
  /** The invocation that launched this one. */
  readonly parent?: string;
}

/** Data of `metric`, the times of an attempt in milliseconds. */
export interface MetricData extends LaunchTimings, SpanReport {
  readonly queuedMs: number;
  readonly preemptedMs?: number;
  /** From the start of the program to its first host call. */
  readonly firstCallMs?: number;
}

/** How long the steps before an inferlet's first instruction took, in milliseconds. */
export interface LaunchTimings {
  /** Fetching the component and building its artifact; 0 when the artifact was in memory or on disk. */
  readonly buildMs: number;
  /** Waiting until the sandbox has compiled the core modules; 0 when its pool has the program. */
  readonly compileMs: number;
  /** Making the instance; 0 when the sandbox had a ready instance, made in advance. */
  readonly instantiateMs: number;
}

/** The kept spans in the order of their beginnings, and the number of dropped spans. */
export interface SpanReport {
  readonly spans?: readonly Span[];
  readonly moreSpans?: number;
}

/** A part of an inferlet's work, such as a node of a workflow, as the event `metric` of its attempt reports it. */
export interface Span {
  readonly name: string;
  readonly kind: string;
  /** Milliseconds after the start of the inferlet. */
  readonly fromMs: number;
  readonly toMs: number;
  readonly failed?: true;
}
