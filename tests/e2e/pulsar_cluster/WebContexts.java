// The web contexts of a broker, without the broker: Jetty and Jersey as WebService and PulsarService set them up. An
// answer names the context that Jetty chose and the resource that Jersey matched. Written for Jakarta EE 10, as Pulsar 5.0;
// web_contexts.py puts the packages of other versions in place of its own.

import jakarta.servlet.DispatcherType;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.FilterConfig;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import jakarta.ws.rs.container.ContainerRequestContext;
import jakarta.ws.rs.core.Response;
import java.io.IOException;
import java.util.EnumSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Supplier;
import org.eclipse.jetty.ee10.servlet.FilterHolder;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Handler;
import org.eclipse.jetty.server.HttpConfiguration;
import org.eclipse.jetty.server.HttpConnectionFactory;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.server.handler.ContextHandlerCollection;
import org.glassfish.jersey.process.Inflector;
import org.glassfish.jersey.server.ResourceConfig;
import org.glassfish.jersey.server.model.Resource;
import org.glassfish.jersey.servlet.ServletContainer;

public class WebContexts {
    static final String ANYTHING = "{rest: .*}";
    static final String FUNCTIONS = "{kind: (function|source|sink)[^/]*}{rest: (/.*)?}";
    static final String WORKERS = "{kind: worker[^/]*}{rest: (/.*)?}";
    static final String TOPIC = "{domain: persistent|non-persistent}/{tenant}/{namespace}/{topic}";
    static final String V1_TOPIC = "{domain: persistent|non-persistent}/{property}/{cluster}/{namespace}/{topic}";

    /** By context: what answers there, by the path that it is mapped to. A broker matches no more than this. */
    static Map<String, Map<String, String>> contexts(boolean v1) {
        Map<String, Map<String, String>> contexts = new LinkedHashMap<>();
        contexts.put("/", Map.of("status.html", "status"));
        if (v1) {
            contexts.put("/admin", Map.of(
                    V1_TOPIC + "/partitions", "client",
                    "namespaces/{property}/{cluster}/{namespace}/destinations", "client",
                    FUNCTIONS, "functions", WORKERS, "functions", ANYTHING, "admin"));
        }
        contexts.put("/admin/v2", Map.of(
                TOPIC + "/partitions", "client",
                "namespaces/{tenant}/{namespace}/topics", "client",
                "schemas/{tenant}/{namespace}/{topic}/schema", "client",
                "schemas/{tenant}/{namespace}/{topic}/schema/{version}", "client",
                FUNCTIONS, "functions", WORKERS, "functions", ANYTHING, "admin"));
        contexts.put("/admin/v3", Map.of(FUNCTIONS, "functions", ANYTHING, "admin"));
        contexts.put("/lookup", Map.of(
                "v2/topic/{domain}/{tenant}/{namespace}/{topic}", "lookup",
                "v2/destination/{domain}/{property}/{cluster}/{namespace}/{topic}", "lookup",
                ANYTHING, "below lookup"));
        contexts.put("/topics", Map.of(ANYTHING, "topics"));
        contexts.put("/metrics", Map.of());
        contexts.put("/static", Map.of());
        for (String kind : new String[] {"producer", "consumer", "reader"}) {
            contexts.put("/ws/" + kind, Map.of());
            contexts.put("/ws/v2/" + kind, Map.of());
        }
        return contexts;
    }

    /** Puts the context into each answer, also where Jersey finds nothing. */
    public static class Telling implements Filter {
        @Override
        public void init(FilterConfig config) {
        }

        @Override
        public void destroy() {
        }

        @Override
        public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain)
                throws IOException, ServletException {
            HttpServletRequest asked = (HttpServletRequest) request;
            HttpServletResponse answer = (HttpServletResponse) response;
            answer.setHeader("Context", asked.getContextPath().isEmpty() ? "/" : asked.getContextPath());
            answer.setHeader("Listener", asked.getHeader("X-Pulsar-ListenerName"));
            chain.doFilter(request, response);
        }
    }

    public static class Plain extends HttpServlet {
        @Override
        protected void service(HttpServletRequest request, HttpServletResponse response) {
            response.setHeader("Resource", request.getContextPath().startsWith("/ws/") ? "ws" : "other");
        }
    }

    static ServletHolder servlet(Map<String, String> resources) {
        if (resources.isEmpty()) {
            return new ServletHolder(new Plain());
        }
        ResourceConfig config = new ResourceConfig();
        resources.forEach((path, name) -> {
            Inflector<ContainerRequestContext, Response> answer =
                    request -> Response.ok("{}", "application/json").header("Resource", name).build();
            Resource.Builder resource = Resource.builder(path);
            resource.addMethod("GET").handledBy(answer);
            config.registerResources(resource.build());
        });
        return new ServletHolder(new ServletContainer(config));
    }

    /** Pulsar 4.2 and later have %2F in paths this way; Jetty 9.4 knows no other. */
    static void allowAmbiguous(Object owner, String setter, Class<?> type, Object value) throws Exception {
        owner.getClass().getMethod(setter, type).invoke(owner, value);
    }

    public static void main(String[] arguments) throws Exception {
        String line = arguments[0];
        Server server = new Server();
        HttpConfiguration configuration = new HttpConfiguration();
        configuration.setRequestHeaderSize(65536);
        if (!line.equals("4.0")) {
            Class<?> compliance = Class.forName("org.eclipse.jetty.http.UriCompliance");
            allowAmbiguous(configuration, "setUriCompliance", compliance, compliance.getField("LEGACY").get(null));
        }
        ServerConnector connector = new ServerConnector(server, new HttpConnectionFactory(configuration));
        connector.setHost("127.0.0.1");
        server.addConnector(connector);
        ContextHandlerCollection all = new ContextHandlerCollection();
        for (Map.Entry<String, Map<String, String>> entry : contexts(line.equals("4.0")).entrySet()) {
            ServletContextHandler context = new ServletContextHandler(ServletContextHandler.SESSIONS);
            context.setContextPath(entry.getKey());
            context.addServlet(servlet(entry.getValue()), "/*");
            context.addFilter(new FilterHolder(new Telling()), "/*", EnumSet.allOf(DispatcherType.class));
            if (line.equals("5.0")) {
                allowAmbiguous(context.getServletHandler(), "setDecodeAmbiguousURIs", boolean.class, true);
            }
            Object handler = context; // in EE 8 it only supplies one
            all.addHandler((Handler) (handler instanceof Supplier ? ((Supplier<?>) handler).get() : handler));
        }
        server.setHandler(all);
        server.start();
        System.out.println("serving on port " + connector.getLocalPort());
        server.join();
    }
}
