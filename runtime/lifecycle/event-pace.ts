import { availableParallelism } from 'node:os';
import { Paces } from '#scheduler/policies/paces.ts';

/**
 * Events per second and core that one tenant may log while other tenants run. An event costs the runtime, Redis and a gateway about 10 µs
 * each, so a flood takes a small part of a machine. A stream of tokens has 40 events per second.
 */
const EVENTS_PER_CORE = 2000;
/** Bytes that cost as much as an event: Redis takes 60 ms per megabyte, including its append-only file. */
const BYTES_OF_AN_EVENT = 512;

/** Rates at which tenants may log events, in events per second. */
export const eventPaces = (): Paces => new Paces(EVENTS_PER_CORE * availableParallelism());

/** Cost of a batch to its tenant, in events. */
export const costOfEvents = (events: number, bytes: number): number => events + bytes / BYTES_OF_AN_EVENT;
