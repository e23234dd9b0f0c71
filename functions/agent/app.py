"""The function: a FastAPI app with your agent at `/`, and the handler that Lambda calls. Add routes to `app` freely."""

from agent import agent
from agui_lambda import create_app
from response_streaming import StreamingMangum

app = create_app(agent)
handler = StreamingMangum(app)
