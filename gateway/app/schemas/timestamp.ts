import { z } from '@hono/zod-openapi';

export const timestamp = z.string().openapi({ description: 'ISO 8601', example: '2026-11-20T05:12:00.000Z' });
