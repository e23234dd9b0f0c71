// The cases of apps/app.py for AWS's own Node.js client, written as AWS documents response streaming.

const EVENT_STREAM = {
  statusCode: 200,
  headers: { 'content-type': 'text/event-stream', 'x-custom': 'a' },
  cookies: ['a=1; Path=/', 'b=2; HttpOnly'],
};

export const handler = awslambda.streamifyResponse(async (event, stream, context) => {
  const begin = (metadata) => awslambda.HttpResponseStream.from(stream, metadata);
  const write = (out, text) => new Promise((written) => out.write(text, written));
  switch (event.rawPath) {
    case '/events':
    case '/fails': {
      const out = begin(EVENT_STREAM);
      await write(out, 'data: {"n":1}\n\n');
      await write(out, 'data: {"n":2}\n\n');
      if (event.rawPath === '/fails') throw new Error('mid-stream ü');
      out.write('data: bye\n\n');
      out.end();
      break;
    }
    case '/throws':
      throw new TypeError('before the first write');
    case '/empty':
      // As one writes it who does not know that then not even the status is sent.
      begin(EVENT_STREAM).end();
      break;
    case '/no-content': {
      const out = begin({ statusCode: 204 });
      out.write('');
      out.end();
      break;
    }
    case '/raw':
      // No prelude: the content type is that of the response, the status always 200.
      stream.setContentType('text/plain');
      stream.write('raw');
      stream.end();
      break;
    case '/context': {
      const out = begin({ statusCode: 200, headers: { 'content-type': 'application/json' } });
      // `end` with the text alone would go out without a prelude: it is `write` that sends it.
      out.write(JSON.stringify({ pid: process.pid, ...context, remaining: context.getRemainingTimeInMillis() }));
      out.end();
      break;
    }
  }
});
