import { availableParallelism } from 'node:os';
import { Paces } from '#scheduler/policies/paces.ts';

/**
 * Events that one tenant may log per second, for each core of the machine, while other tenants run. An event costs the runtime, Redis and a
 * gateway about 10 µs each, so a flood takes a small part of the machine. For comparison: a stream of tokens has 40 events per second.
 */
const EVENTS_PER_CORE = 2000;
/** Bytes of event data that cost about as much as an event (30 µs): Redis takes 60 ms per megabyte, including its append-only file. */
const BYTES_OF_AN_EVENT = 512;

/** The paces at which tenants may log events; their unit is an event. */
export const eventPaces = (): Paces => new Paces(EVENTS_PER_CORE * availableParallelism());

/** Cost of a batch of events for its tenant's pace, in events. @param bytes size of the events' data */
export const costOfEvents = (events: number, bytes: number): number => events + bytes / BYTES_OF_AN_EVENT;
