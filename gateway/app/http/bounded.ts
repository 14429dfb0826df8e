import type { MiddlewareHandler } from 'hono';
import type { AppEnv } from '../context.ts';
import { AnswerMemory } from './answer.ts';
import { type Bodies, Body } from './bodies.ts';
import type { Decoders } from './decoding.ts';
import type { OpenStreams } from './open-streams.ts';

/** Gives each request its body and the memory of its answer. The body counts as held at most until the handler has answered. */
export function boundedBodies(bodies: Bodies, decoders: Decoders): MiddlewareHandler<AppEnv> {
  return async function boundedBodies(c, next) {
    const tenant = () => c.get('principal')?.tenant ?? '';
    const body = new Body(c.req.raw, bodies, tenant, decoders);
    const answer = new AnswerMemory(bodies, tenant);
    c.set('body', body);
    c.set('answer', answer);
    try {
      await next();
    } finally {
      body.release();
      answer.release();
    }
  };
}

/**
 * Counts an answer that may stay open: until the handler has answered or, if the handler has called `keepOpen`, until the stream ends. Meanwhile the
 * tenant counts as one with requests for the pacing of large bodies (`Bodies.paces`).
 */
export function boundedStreams(streams: OpenStreams, bodies: Bodies): MiddlewareHandler<AppEnv> {
  return async function boundedStreams(c, next) {
    const principal = c.get('principal');
    if (principal === undefined) return next();
    const leaveStreams = streams.enter(principal);
    const pace = bodies.paces.enter(principal.tenant);
    let hasLeft = false;
    const leave = () => {
      if (hasLeft) return;
      hasLeft = true;
      leaveStreams();
      pace[Symbol.dispose]();
    };
    let isKeptOpen = false;
    c.set('keepOpen', () => {
      isKeptOpen = true;
      return leave;
    });
    try {
      await next();
    } finally {
      if (!isKeptOpen) leave();
    }
  };
}
