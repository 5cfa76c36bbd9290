"""A trained network as a page that runs it in the visitor's browser: `page/` is what is shipped as it is."""

from arrn.web.site import Site, build_site
from arrn.web.site_server import serve_site

__all__ = ["Site", "build_site", "serve_site"]
