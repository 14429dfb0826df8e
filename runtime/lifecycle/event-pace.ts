import { availableParallelism } from 'node:os';
import { Paces } from '#scheduler/policies/paces.ts';

/**
 * Events a second that one tenant may log for each core while others run: each costs the runtime, Redis and a gateway some 10 µs, so that a flood
 * takes a small part of a machine. A stream of tokens has 40 events a second.
 */
const EVENTS_PER_CORE = 2000;
/** Bytes that cost as much as an event: Redis takes 60 ms for a megabyte, its file included. */
const BYTES_OF_AN_EVENT = 512;

/** How fast tenants may log events, in events. */
export const eventPaces = (): Paces => new Paces(EVENTS_PER_CORE * availableParallelism());

/** What a batch of events costs its tenant, in events. */
export const costOfEvents = (events: number, bytes: number): number => events + bytes / BYTES_OF_AN_EVENT;
