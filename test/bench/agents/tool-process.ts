/** A tool over HTTP: answers a POST of `{"step": n}` to `/LATENCY` after `LATENCY` milliseconds. */
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
// Connections stay open until the processes end: a keep-alive timeout could close an idle connection just as a client sends a request.
server.keepAliveTimeout = 0;
server.listen(0, '127.0.0.1', () => announce([(server.address() as AddressInfo).port]));
