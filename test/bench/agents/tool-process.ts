/** A tool over HTTP: answers a POST of `{"step": n}` to `/LATENCY` after this number of milliseconds. */
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { announce } from './child-server.ts';
import { answerOf } from './task.ts';

const server = http.createServer((request, response) => {
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    const { step } = JSON.parse(Buffer.concat(chunks).toString()) as { step: number };
    const latencyMs = Number((request.url ?? '/').slice(1));
    setTimeout(() => response.end(answerOf(step)), latencyMs);
  });
});
// Both ends are on one machine and end together, so an idle connection must never close while a request uses it.
server.keepAliveTimeout = 0;
server.listen(0, '127.0.0.1', () => announce([(server.address() as AddressInfo).port]));
